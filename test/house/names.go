package house

import (
	"go/ast"
	"path"
	"slices"
)

// banned are names of another package that library code does not use.
type banned struct {
	path    string
	names   []string // patterns of path.Match
	instead string
}

var bannedNames = []banned{
	{
		path:    "time",
		names:   []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		instead: "time comes from a k8s.io/utils/clock in the config",
	},
	{path: "context", names: []string{"Background", "TODO"}, instead: "take the context from the caller"},
	{path: "sync/atomic", names: []string{"Value"}, instead: "use atomic.Pointer[T]"},
	{path: "net/http", names: []string{"Error", "NotFound"}, instead: "answer a negotiated Status"},
	{
		path:    "k8s.io/klog/v2",
		names:   []string{"Info*", "Warning*", "Error*", "Fatal*", "Exit*", "V", "Background", "TODO"},
		instead: "log through klog.FromContext(ctx)",
	},
	{path: "log", names: []string{"Print*", "Fatal*", "Panic*", "Output", "Default"}, instead: "log through klog.FromContext(ctx)"},
	{path: "fmt", names: []string{"Print", "Printf", "Println"}, instead: "log through klog.FromContext(ctx)"},
	{path: "os", names: []string{"Exit"}, instead: "return an error; the program decides when to end"},
}

func checkNames(tree *Tree) []Finding {
	var findings []Finding
	for _, file := range tree.Files {
		if !file.in("pkg") || file.IsTest() || file.generated() {
			continue
		}
		for use := range file.uses() {
			for _, ban := range bannedNames {
				if ban.matches(use) {
					findings = append(findings, file.at(use.node, "%s.%s: %s", use.path, use.name, ban.instead))
				}
			}
		}
	}
	return findings
}

func (b banned) matches(use use) bool {
	return use.path == b.path && slices.ContainsFunc(b.names, func(pattern string) bool {
		ok, err := path.Match(pattern, use.name)
		return ok && err == nil
	})
}

func checkSleeps(tree *Tree) []Finding {
	var findings []Finding
	for _, file := range tree.Files {
		if !file.IsTest() {
			continue
		}
		if _, bubble := file.imports()["synctest"]; bubble {
			continue // there it is the bubble's clock that moves
		}
		for use := range file.uses() {
			if use.path == "time" && use.name == "Sleep" {
				findings = append(findings, file.at(use.node, "time.Sleep"))
			}
		}
	}
	return findings
}

// use is one use of a name of another package.
type use struct {
	path, name string
	node       ast.Node
}

// uses yields every package.Name in the file.
func (f *File) uses() func(yield func(use) bool) {
	imports := f.imports()
	return func(yield func(use) bool) {
		for node := range ast.Preorder(f.AST) {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			qualifier, ok := selector.X.(*ast.Ident)
			if !ok || qualifier.Obj != nil { // a variable that hides the package
				continue
			}
			imported, ok := imports[qualifier.Name]
			if ok && !yield(use{path: imported, name: selector.Sel.Name, node: selector}) {
				return
			}
		}
	}
}
