package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Lines that a file may have. Tests are tables, which are long and simple.
const (
	maxLines     = 400
	maxTestLines = 600
)

func checkLengths(tree *Tree) []Finding {
	var findings []Finding
	for _, file := range tree.Files {
		limit := maxLines
		if file.IsTest() {
			limit = maxTestLines
		}
		if lines := bytes.Count(file.Content, []byte("\n")); lines > limit && !file.generated() {
			findings = append(findings, finding(file.Path, 0, "%d lines, of at most %d", lines, limit))
		}
	}
	return findings
}

func checkPackageComments(tree *Tree) []Finding {
	var findings []Finding
	packages := tree.packages()
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		files := packages[dir]
		code := slices.DeleteFunc(slices.Clone(files), (*File).IsTest)
		if len(code) > 0 {
			files = code
		}
		findings = append(findings, checkPackageComment(dir, files)...)
	}
	return findings
}

func checkPackageComment(dir string, files []*File) []Finding {
	commented := slices.DeleteFunc(slices.Clone(files), func(f *File) bool { return f.AST.Doc == nil })
	if len(commented) != 1 {
		return []Finding{finding(dir, 0, "%d package comments", len(commented))}
	}
	file := commented[0]
	name := file.AST.Name.Name
	if name != "main" && !strings.HasPrefix(file.AST.Doc.Text(), "Package "+name+" ") {
		return []Finding{file.at(file.AST.Doc, "the comment does not begin with \"Package %s\"", name)}
	}
	return nil
}

// checkLeaks looks for packages with a go statement whose tests never verify
// that no goroutine is left.
func checkLeaks(tree *Tree) []Finding {
	var findings []Finding
	packages := tree.packages()
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if !within(dir, "pkg") || slices.ContainsFunc(packages[dir], verifiesLeaks) {
			continue
		}
		for _, file := range packages[dir] {
			if statement := file.goStatement(); statement != nil && !file.IsTest() {
				findings = append(findings, file.at(statement, "starts a goroutine; no test of %s uses goleak", dir))
			}
		}
	}
	return findings
}

func verifiesLeaks(file *File) bool {
	for use := range file.uses() {
		if file.IsTest() && use.path == "go.uber.org/goleak" && strings.HasPrefix(use.name, "Verify") {
			return true
		}
	}
	return false
}

func (f *File) goStatement() ast.Node {
	for node := range ast.Preorder(f.AST) {
		if statement, ok := node.(*ast.GoStmt); ok {
			return statement
		}
	}
	return nil
}

var (
	unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	reasoned   = regexp.MustCompile(`^\([^()]+\): \S`)
)

// marker is the form that checkMarkers lets pass.
func marker(word, reason string) string {
	return fmt.Sprintf("// %s(%s): what is missing", word, reason)
}

func checkMarkers(tree *Tree) []Finding {
	var findings []Finding
	for _, file := range tree.Files {
		for _, group := range file.AST.Comments {
			for _, comment := range group.List {
				for _, found := range unfinished.FindAllStringIndex(comment.Text, -1) {
					if !reasoned.MatchString(comment.Text[found[1]:]) {
						findings = append(findings, file.at(comment, "%s", comment.Text[found[0]:found[1]]))
					}
				}
			}
		}
	}
	return findings
}

// The brackets keep the pattern from matching itself.
var machinePath = regexp.MustCompile(`(?:^|[^\w.-])(/(?:w[o]rk|r[o]ot|f[a]rm|h[o]me/\w+|U[s]ers/\w+)/)`)

func checkMachinePaths(tree *Tree) []Finding {
	var findings []Finding
	for _, text := range tree.Texts {
		if path.Ext(text.Path) == ".sum" { // base64 may spell anything
			continue
		}
		for number, line := range bytes.Split(text.Content, []byte("\n")) {
			if found := machinePath.FindSubmatch(line); found != nil {
				findings = append(findings, finding(text.Path, number+1, "%s", found[1]))
			}
		}
	}
	return findings
}
