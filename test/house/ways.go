package house

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ways are the files that send requests to peers, and a test of each that shows
// as whom they ask. A peer believes whatever this server's certificate tells it:
// there is no other way to one.
var ways = map[string]string{
	"pkg/serve/forward/attempt.go":   "TestUpgradeHappensAsTheUser",
	"pkg/observe/discovery/fetch.go": "TestServerAsksInItsOwnName",
	"pkg/serve/openapi/fetch.go":     "TestServerAsksInItsOwnName",
	"pkg/transport/redial.go":        "TestRedialTakesAnyAnswer",
	"pkg/transport/server.go":        "TestServerAsksInItsOwnName",
	"pkg/transport/transport.go":     "TestIdentityArrivesUnchanged",
}

func checkWays(tree *Tree) []Finding {
	tests := tree.tests()
	senders := map[string]bool{}
	var findings []Finding
	for _, file := range tree.Files {
		if !file.in("pkg") || file.IsTest() {
			continue
		}
		for node := range ast.Preorder(file.AST) {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				continue
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "RoundTrip" {
				continue
			}
			senders[file.Path] = true
			if test := ways[file.Path]; test == "" {
				findings = append(findings, file.at(call, "sends a request by a way that has no row in the table"))
			} else if !tests[test] {
				findings = append(findings, file.at(call, "its test %s does not exist", test))
			}
		}
		if file.in("pkg/transport") {
			continue
		}
		for use := range file.uses() {
			if use.path == "net/http" && use.name == "Client" || use.path == "crypto/tls" && use.name == "Client" || use.path == "net" && strings.HasPrefix(use.name, "Dial") {
				findings = append(findings, file.at(use.node, "%s.%s: only pkg/transport connects to a peer", use.path, use.name))
			}
		}
	}
	return append(findings, staleWays(tree, senders)...)
}

// staleWays are the rows whose file sends nothing.
func staleWays(tree *Tree, senders map[string]bool) []Finding {
	var findings []Finding
	for _, path := range slices.Sorted(maps.Keys(ways)) {
		known := slices.ContainsFunc(tree.Files, func(f *File) bool { return f.Path == path })
		if known && !senders[path] {
			findings = append(findings, finding(path, 0, "sends nothing, but has a row in the table of test/house/ways.go"))
		}
	}
	return findings
}

// tests are the names of all tests of the tree.
func (t *Tree) tests() map[string]bool {
	names := map[string]bool{}
	for _, file := range t.Files {
		if !file.IsTest() {
			continue
		}
		for _, declaration := range file.AST.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil {
				names[function.Name.Name] = true
			}
		}
	}
	return names
}

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)

// checkNamedTests finds tests that a document names and no one has.
func checkNamedTests(tree *Tree) []Finding {
	tests := tree.tests()
	var findings []Finding
	for _, text := range tree.Texts {
		if !strings.HasSuffix(text.Path, ".md") {
			continue
		}
		number := 0
		for line := range strings.Lines(string(text.Content)) {
			number++
			for _, name := range testName.FindAllString(line, -1) {
				if !tests[name] {
					findings = append(findings, finding(text.Path, number, "there is no %s", name))
				}
			}
		}
	}
	return findings
}
