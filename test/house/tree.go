package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Tree is a repository's text files, and its Go files parsed.
type Tree struct {
	// Module is the module path that go.mod at the root declares.
	Module string
	// Texts are all text files, sorted by path.
	Texts []Text
	// Files are the Go files outside of testdata, sorted by path.
	Files []*File
}

// Text is one text file.
type Text struct {
	Path    string // with slashes, from the root
	Content []byte
}

// File is one Go file.
type File struct {
	Text

	AST  *ast.File
	fset *token.FileSet
}

// Directories that are not the repository's own text.
var skipped = []string{".git", ".cache", "bin"}

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)`)

// Load reads the tree whose root is root.
func Load(root fs.FS) (*Tree, error) {
	tree := &Tree{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains(skipped, name) {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() || name == ".git" { // a worktree's is a file
			return nil
		}
		return tree.add(root, name)
	})
	if err != nil {
		return nil, err
	}
	if tree.Module == "" {
		return nil, fmt.Errorf("no go.mod with a module line at the root")
	}
	return tree, nil
}

func (t *Tree) add(root fs.FS, name string) error {
	content, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	if bytes.IndexByte(content, 0) >= 0 { // a binary that somebody built
		return nil
	}
	text := Text{Path: name, Content: content}
	t.Texts = append(t.Texts, text)
	if match := moduleLine.FindSubmatch(content); name == "go.mod" && match != nil {
		t.Module = string(match[1])
	}
	if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
		return nil
	}
	return t.parse(text)
}

func (t *Tree) parse(text Text) error {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, text.Path, text.Content, parser.ParseComments)
	if err != nil {
		return err
	}
	t.Files = append(t.Files, &File{Text: text, AST: parsed, fset: fset})
	return nil
}

// packages are the files of each directory that holds Go files.
func (t *Tree) packages() map[string][]*File {
	packages := map[string][]*File{}
	for _, file := range t.Files {
		packages[file.Dir()] = append(packages[file.Dir()], file)
	}
	return packages
}

// Dir is the directory of the file, from the root.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsTest tells whether only `go test` compiles the file.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// in tells whether the file lies in dir or below it.
func (f *File) in(dir string) bool { return within(f.Path, dir) }

// generated tells whether a program wrote the file.
func (f *File) generated() bool { return ast.IsGenerated(f.AST) }

// at makes a finding at the place of node.
func (f *File) at(node ast.Node, format string, args ...any) Finding {
	return finding(f.Path, f.fset.Position(node.Pos()).Line, format, args...)
}

// imports maps the name by which the file calls each package to its path.
func (f *File) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range f.AST.Imports {
		name := packageName(importPath(spec))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = importPath(spec)
	}
	return names
}

func importPath(spec *ast.ImportSpec) string { return strings.Trim(spec.Path.Value, `"`) }

var majorVersion = regexp.MustCompile(`^v\d+$`)

// packageName guesses a package's name from its path, which is right for all
// packages that the rules name.
func packageName(importPath string) string {
	if base := path.Base(importPath); !majorVersion.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(importPath))
}

// within tells whether name is dir or lies below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}
