package house

import (
	"slices"
	"strings"
)

// room is a package of the library and what it may import.
type room struct {
	dir string
	// inside are the packages of this module; a name that ends in /... takes in
	// all below it.
	inside []string
	// outside are the modules, or parts of them, of others; nil for any.
	outside []string
	// not are packages that the room does without, of the standard library too.
	not []string
}

// Packages that carry data only, for the pure rooms.
var kubernetesTypes = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils"}

// The import table. The two wings, observe and serve, meet in snapshot alone.
// No arrow runs up, or across between the wings.
var rooms = []room{
	// The ground floor.
	{dir: "pkg/snapshot", outside: kubernetesTypes, not: []string{"net/http"}},
	{dir: "pkg/transport", inside: []string{"pkg/metrics"}},
	{dir: "pkg/metrics"},

	// The news' wing.
	{dir: "pkg/observe", inside: []string{"pkg/observe/...", "pkg/snapshot", "pkg/transport", "pkg/metrics"}},
	{dir: "pkg/observe/lease", inside: []string{"pkg/snapshot", "pkg/metrics", "pkg/observe/dirty"}},
	{
		dir:    "pkg/observe/discovery",
		inside: []string{"pkg/snapshot", "pkg/transport", "pkg/metrics", "pkg/observe/dirty"},
		not:    []string{"k8s.io/client-go"},
	},
	{
		dir:    "pkg/observe/exclusion",
		inside: []string{"pkg/snapshot", "pkg/metrics", "pkg/observe/dirty"},
		not:    []string{"net/http", "k8s.io/apiserver"},
	},
	{dir: "pkg/observe/dirty", outside: []string{}, not: []string{"net/http"}},

	// The requests' wing.
	{dir: "pkg/serve", inside: []string{"pkg/serve/...", "pkg/snapshot", "pkg/transport", "pkg/metrics"}},
	{dir: "pkg/serve/forward", inside: []string{"pkg/snapshot", "pkg/transport", "pkg/metrics", "pkg/serve/health"}},
	{
		dir:     "pkg/serve/health",
		inside:  []string{"pkg/metrics"},
		outside: append([]string{"k8s.io/klog"}, kubernetesTypes...),
		not:     []string{"net", "net/http"},
	},
	{dir: "pkg/serve/document", inside: []string{"pkg/snapshot", "pkg/metrics", "pkg/serve/merge", "pkg/serve/represent"}},
	{dir: "pkg/serve/represent"},
	{dir: "pkg/serve/openapi", inside: []string{"pkg/snapshot", "pkg/transport", "pkg/metrics", "pkg/serve/merge", "pkg/serve/represent"}},
	{
		dir:     "pkg/serve/merge",
		inside:  []string{"pkg/snapshot"},
		outside: append([]string{"k8s.io/kube-openapi"}, kubernetesTypes...),
		not:     []string{"net", "os", "sync", "time", "k8s.io/utils/clock"},
	},

	// The front door, and what stands before it.
	{dir: "pkg/peerz", inside: []string{"pkg/snapshot", "pkg/serve/health"}},
	{
		dir: "pkg/peerproxy",
		inside: []string{
			"pkg/observe/...", "pkg/serve/...", "pkg/peerz",
			"pkg/snapshot", "pkg/transport", "pkg/metrics",
		},
	},
	{dir: "pkg/options", inside: []string{"pkg/peerproxy", "pkg/transport"}},
}

// stranger is an import that has no place in some directories.
type stranger struct {
	path string
	// in are the directories that must not import path; except are those below
	// them that may.
	in, except []string
	// tests tells whether tests must not import it either.
	tests bool
	why   string
}

var strangers = []stranger{
	{
		path: "k8s.io/kubernetes", in: []string{"pkg", "test", "hack"}, tests: true,
		why: "the library links into any kube-apiserver; only cmd/ reaches k8s.io/kubernetes",
	},
	{path: "$module/cmd", in: []string{"pkg", "test", "hack"}, tests: true, why: "nothing imports a program"},
	{path: "$module/test", in: []string{"pkg", "cmd"}, except: []string{"cmd/mixed-cluster"}, why: "test support stays out of what users link"},
	{path: "testing", in: []string{"pkg", "cmd"}, why: "test support stays out of what users link"},
	{path: "net/http/httptest", in: []string{"pkg", "cmd"}, why: "test support stays out of what users link"},
	{path: "github.com/google/go-cmp", in: []string{"pkg", "cmd"}, why: "test support stays out of what users link"},
	{path: "go.uber.org/goleak", in: []string{"pkg", "cmd"}, why: "test support stays out of what users link"},
	{path: "go.etcd.io/etcd/server", in: []string{"pkg"}, why: "the library reaches etcd through storage.Interface"},
}

func checkImportTable(tree *Tree) []Finding {
	var findings []Finding
	for _, file := range tree.Files {
		if !file.in("pkg") {
			continue
		}
		row := slices.IndexFunc(rooms, func(r room) bool { return r.dir == file.Dir() })
		if row < 0 {
			findings = append(findings, finding(file.Path, 0, "package %s has no row in the import table", file.Dir()))
			continue
		}
		findings = append(findings, rooms[row].check(tree, file)...)
	}
	return findings
}

// check returns the imports of file that the room does not allow. A test may
// import the room itself and test support, and anything of others.
func (r room) check(tree *Tree, file *File) []Finding {
	var findings []Finding
	for _, spec := range file.AST.Imports {
		imported := importPath(spec)
		if dir, ok := strings.CutPrefix(imported, tree.Module+"/"); ok {
			if !r.allowsInside(dir) && !(file.IsTest() && (dir == r.dir || within(dir, "test"))) {
				findings = append(findings, file.at(spec, "%s must not import %s", r.dir, dir))
			}
			continue
		}
		if !file.IsTest() && !r.allowsOutside(imported) {
			findings = append(findings, file.at(spec, "%s must not import %s", r.dir, imported))
		}
	}
	return findings
}

func (r room) allowsInside(dir string) bool {
	return slices.ContainsFunc(r.inside, func(allowed string) bool {
		below, all := strings.CutSuffix(allowed, "/...")
		return dir == below || all && within(dir, below)
	})
}

func (r room) allowsOutside(path string) bool {
	under := func(prefix string) bool { return within(path, prefix) }
	if slices.ContainsFunc(r.not, under) {
		return false
	}
	standard := !strings.Contains(strings.Split(path, "/")[0], ".")
	return standard || r.outside == nil || slices.ContainsFunc(r.outside, under)
}

func checkStrangers(tree *Tree) []Finding {
	var findings []Finding
	for _, file := range tree.Files {
		for _, spec := range file.AST.Imports {
			for _, stranger := range strangers {
				if stranger.meets(tree, file, importPath(spec)) {
					findings = append(findings, file.at(spec, "imports %s: %s", importPath(spec), stranger.why))
				}
			}
		}
	}
	return findings
}

func (s stranger) meets(tree *Tree, file *File, path string) bool {
	if file.IsTest() && !s.tests {
		return false
	}
	unwanted := strings.Replace(s.path, "$module", tree.Module, 1)
	return within(path, unwanted) && slices.ContainsFunc(s.in, file.in) && !slices.ContainsFunc(s.except, file.in)
}
