package house

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ways are the files that send requests to peers, each by one call, and a test of
// each that shows as whom they ask. A peer believes whatever this server's
// certificate tells it: there is no other way to one.
var ways = map[string]string{
	"pkg/serve/forward/forward.go":   "TestNoForgedIdentityReachesAPeer",
	"pkg/serve/forward/attempt.go":   "TestUpgradeHappensAsTheUser",
	"pkg/observe/discovery/fetch.go": "TestAPeerIsAskedForDocumentsInTheServersOwnName",
	"pkg/serve/openapi/fetch.go":     "TestAPeerIsAskedForDocumentsInTheServersOwnName",
	"pkg/transport/redial.go":        "TestRedialTakesAnyAnswer",
	"pkg/transport/server.go":        "TestServerAsksInItsOwnName",
	"pkg/transport/transport.go":     "TestEveryKindOfUserIsTheSameUserAtThePeer",
}

// connects are the names of what opens connections, by their package: pkg/transport
// alone uses them.
var connects = map[string]*regexp.Regexp{
	"crypto/tls":            regexp.MustCompile(`^(Client|Dial.*)$`),
	"net":                   regexp.MustCompile(`^Dial`),
	"net/http":              regexp.MustCompile(`^(Client|Transport|Default(Client|Transport)|Get|Head|Post|PostForm)$`),
	"k8s.io/client-go/rest": regexp.MustCompile(``), // all of it
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
			selector, ok := node.(*ast.SelectorExpr)
			if !ok || !sends(selector) {
				continue
			}
			switch test := ways[file.Path]; {
			case test == "":
				findings = append(findings, file.at(selector, "sends a request by a way that has no row in the table"))
			case senders[file.Path]:
				findings = append(findings, file.at(selector, "sends a request by a second way: a file has one"))
			case !tests[test]:
				findings = append(findings, file.at(selector, "its test %s does not exist", test))
			}
			senders[file.Path] = true
		}
		if file.in("pkg/transport") {
			continue
		}
		for use := range file.uses() {
			if names := connects[use.path]; names != nil && names.MatchString(use.name) {
				findings = append(findings, file.at(use.node, "%s.%s: only pkg/transport connects to a peer", use.path, use.name))
			}
		}
	}
	return append(findings, staleWays(tree, senders)...)
}

// sends tells whether a name sends requests: by a transport, or by a proxy that is
// given one.
func sends(s *ast.SelectorExpr) bool {
	return slices.Contains([]string{"RoundTrip", "ReverseProxy", "NewSingleHostReverseProxy"}, s.Sel.Name)
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
