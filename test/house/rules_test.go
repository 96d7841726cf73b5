package house

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// sample is a small tree, and what a rule finds in it.
type sample struct {
	name  string
	files map[string]string
	want  []string
}

// samples are trees that break each rule, and near them trees that do not.
var samples = map[string][]sample{
	"every way to a peer shows who asks": {
		{
			name: "a new way",
			files: map[string]string{
				"pkg/serve/probe.go": "package serve\n\nimport \"net\"\n\nfunc f(t T) { t.RoundTrip(nil); net.Dial(\"\", \"\") }\n",
				"pkg/serve/proxy.go": "package serve\n\nimport \"net/http/httputil\"\n\nvar p = httputil.ReverseProxy{Transport: t}\n",
				"pkg/serve/value.go": "package serve\n\nvar send = t.RoundTrip\n",
			},
			want: []string{
				"pkg/serve/probe.go:5: net.Dial: only pkg/transport connects to a peer",
				"pkg/serve/probe.go:5: sends a request by a way that has no row in the table",
				"pkg/serve/proxy.go:5: sends a request by a way that has no row in the table",
				"pkg/serve/value.go:3: sends a request by a way that has no row in the table",
			},
		},
		{
			name: "connections of one's own",
			files: map[string]string{
				"pkg/serve/http.go":        "package serve\n\nimport \"net/http\"\n\nvar (\n\t_ = http.Client{}\n\t_ = http.Transport{}\n\t_ = http.DefaultClient\n\t_ = http.Get\n\t_ = http.NewRequest\n)\n",
				"pkg/serve/tls.go":         "package serve\n\nimport \"crypto/tls\"\n\nvar (\n\t_ = tls.Dialer{}\n\t_ = tls.Dial\n\t_ = tls.VersionTLS12\n)\n",
				"pkg/observe/client.go":    "package observe\n\nimport \"k8s.io/client-go/rest\"\n\nvar _ = rest.HTTPClientFor\n",
				"pkg/serve/client_test.go": "package serve\n\nimport \"net/http\"\n\nvar _ = http.DefaultClient\n",
				"pkg/transport/dial.go":    "package transport\n\nimport \"net\"\n\nvar _ = net.Dialer{}\n",
			},
			want: []string{
				"pkg/observe/client.go:5: k8s.io/client-go/rest.HTTPClientFor: only pkg/transport connects to a peer",
				"pkg/serve/http.go:6: net/http.Client: only pkg/transport connects to a peer",
				"pkg/serve/http.go:7: net/http.Transport: only pkg/transport connects to a peer",
				"pkg/serve/http.go:8: net/http.DefaultClient: only pkg/transport connects to a peer",
				"pkg/serve/http.go:9: net/http.Get: only pkg/transport connects to a peer",
				"pkg/serve/tls.go:6: crypto/tls.Dialer: only pkg/transport connects to a peer",
				"pkg/serve/tls.go:7: crypto/tls.Dial: only pkg/transport connects to a peer",
			},
		},
		{
			name: "a second way in a file that has one",
			files: map[string]string{
				"pkg/transport/server.go":      "package transport\n\nfunc f(t T) {\n\tt.RoundTrip(nil)\n\tt.RoundTrip(nil)\n}\n",
				"pkg/transport/server_test.go": "package transport\n\nfunc TestServerAsksInItsOwnName(t T) {}\n",
			},
			want: []string{"pkg/transport/server.go:5: sends a request by a second way: a file has one"},
		},
		{
			name: "a way whose test is gone, and one that is gone itself",
			files: map[string]string{
				"pkg/transport/server.go":    "package transport\n\nfunc f(t T) { t.RoundTrip(nil) }\n",
				"pkg/transport/transport.go": "package transport\n",
			},
			want: []string{
				"pkg/transport/server.go:3: its test TestServerAsksInItsOwnName does not exist",
				"pkg/transport/transport.go: sends nothing, but has a row in the table of test/house/ways.go",
			},
		},
	},
	"documents name tests that exist": {
		{
			name: "one that does and one that does not",
			files: map[string]string{
				"pkg/a/a_test.go": "package a\n\nfunc TestOne(t T) {}\n",
				"pkg/a/README.md": "TestOne\n\nTestTwo\n",
			},
			want: []string{"pkg/a/README.md:3: there is no TestTwo"},
		},
	},
	"imports keep to the table": {
		{
			name: "across the wings",
			files: map[string]string{
				"pkg/serve/filter.go":      "package serve\n\nimport _ \"m/pkg/observe/lease\"\n",
				"pkg/observe/a_test.go":    "package observe\n\nimport _ \"m/pkg/serve\"\n",
				"pkg/observe/lease/own.go": "package lease\n\nimport _ \"m/pkg/snapshot\"\n",
			},
			want: []string{
				"pkg/observe/a_test.go:3: pkg/observe must not import pkg/serve",
				"pkg/serve/filter.go:3: pkg/serve must not import pkg/observe/lease",
			},
		},
		{
			name:  "up",
			files: map[string]string{"pkg/snapshot/a.go": "package snapshot\n\nimport _ \"m/pkg/peerproxy\"\n"},
			want:  []string{"pkg/snapshot/a.go:3: pkg/snapshot must not import pkg/peerproxy"},
		},
		{
			name: "a pure room that reaches for the network",
			files: map[string]string{
				"pkg/snapshot/a.go":    "package snapshot\n\nimport (\n\t_ \"net/http\"\n\t_ \"k8s.io/client-go/rest\"\n)\n",
				"pkg/serve/merge/a.go": "package merge\n\nimport (\n\t_ \"sync/atomic\"\n\t_ \"k8s.io/apiserver/pkg/server\"\n)\n",
			},
			want: []string{
				"pkg/serve/merge/a.go:4: pkg/serve/merge must not import sync/atomic",
				"pkg/serve/merge/a.go:5: pkg/serve/merge must not import k8s.io/apiserver/pkg/server",
				"pkg/snapshot/a.go:4: pkg/snapshot must not import net/http",
				"pkg/snapshot/a.go:5: pkg/snapshot must not import k8s.io/client-go/rest",
			},
		},
		{
			name: "a test's own package, test support and tools",
			files: map[string]string{
				"pkg/snapshot/a_test.go": "package snapshot_test\n\n" +
					"import (\n\t_ \"m/pkg/snapshot\"\n\t_ \"m/test/peertest\"\n\t_ \"net/http\"\n)\n",
			},
		},
		{
			name:  "a package without a row",
			files: map[string]string{"pkg/extra/a.go": "package extra\n"},
			want:  []string{"pkg/extra/a.go: package pkg/extra has no row in the import table"},
		},
		{
			name:  "a name that only begins like an allowed one",
			files: map[string]string{"pkg/snapshot/a.go": "package snapshot\n\nimport _ \"k8s.io/apiserver\"\n"},
			want:  []string{"pkg/snapshot/a.go:3: pkg/snapshot must not import k8s.io/apiserver"},
		},
	},
	"imports that have no place here": {
		{
			name: "Kubernetes itself",
			files: map[string]string{
				"pkg/options/a_test.go": "package options\n\nimport _ \"k8s.io/kubernetes/pkg/apis/core\"\n",
				"cmd/server/main.go":    "package main\n\nimport _ \"k8s.io/kubernetes/pkg/apis/core\"\n",
			},
			want: []string{"pkg/options/a_test.go:3: imports k8s.io/kubernetes/pkg/apis/core: " +
				"the library links into any kube-apiserver; only cmd/ reaches k8s.io/kubernetes"},
		},
		{
			name: "test support",
			files: map[string]string{
				"pkg/options/a.go":      "package options\n\nimport _ \"testing\"\n",
				"pkg/options/a_test.go": "package options\n\nimport _ \"testing\"\n",
				"pkg/options/b.go":      "package options\n\nimport _ \"m/test/peertest\"\n",
			},
			want: []string{
				"pkg/options/a.go:3: imports testing: test support stays out of what users link",
				"pkg/options/b.go:3: imports m/test/peertest: test support stays out of what users link",
			},
		},
		{
			name:  "a program",
			files: map[string]string{"test/e2e/a_test.go": "package e2e\n\nimport _ \"m/cmd/server\"\n"},
			want:  []string{"test/e2e/a_test.go:3: imports m/cmd/server: nothing imports a program"},
		},
	},
	"calls that library code does not make": {
		{
			name: "each table row",
			files: map[string]string{"pkg/serve/a.go": `package serve

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
	clock "time"

	"k8s.io/klog/v2"
)

var v atomic.Value

func f(w http.ResponseWriter) {
	_ = clock.Now()
	_ = context.Background()
	http.Error(w, "", 500)
	klog.InfoS("")
	klog.V(2).Info("")
	klog.FromContext(nil).Info("")
	log.Print()
	fmt.Println()
	os.Exit(1)
}
`},
			want: []string{
				"pkg/serve/a.go:15: sync/atomic.Value: use atomic.Pointer[T]",
				"pkg/serve/a.go:18: time.Now: time comes from a k8s.io/utils/clock in the config",
				"pkg/serve/a.go:19: context.Background: take the context from the caller",
				"pkg/serve/a.go:20: net/http.Error: answer a negotiated Status",
				"pkg/serve/a.go:21: k8s.io/klog/v2.InfoS: log through klog.FromContext(ctx)",
				"pkg/serve/a.go:22: k8s.io/klog/v2.V: log through klog.FromContext(ctx)",
				"pkg/serve/a.go:24: log.Print: log through klog.FromContext(ctx)",
				"pkg/serve/a.go:25: fmt.Println: log through klog.FromContext(ctx)",
				"pkg/serve/a.go:26: os.Exit: return an error; the program decides when to end",
			},
		},
		{
			name: "a value, not only a call",
			files: map[string]string{
				"pkg/serve/a.go": "package serve\n\nimport \"time\"\n\nvar now = time.Now\n",
			},
			want: []string{"pkg/serve/a.go:5: time.Now: time comes from a k8s.io/utils/clock in the config"},
		},
		{
			name: "programs, tests, and a variable of the same name",
			files: map[string]string{
				"cmd/server/main.go":  "package main\n\nimport \"context\"\n\nvar ctx = context.Background()\n",
				"pkg/serve/a_test.go": "package serve\n\nimport \"time\"\n\nvar now = time.Now\n",
				"pkg/serve/a.go": "package serve\n\nimport \"time\"\n\nvar _ time.Time\n\n" +
					"func f(time clock) { time.Now() }\n",
			},
		},
	},
	"tests do not sleep in real time": {
		{
			name: "outside of a bubble; a helper that polls may",
			files: map[string]string{
				"pkg/serve/a_test.go": "package serve\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
				"test/cluster/a.go":   "package cluster\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
			},
			want: []string{"pkg/serve/a_test.go:5: time.Sleep"},
		},
		{
			name: "in a bubble",
			files: map[string]string{"pkg/serve/a_test.go": "package serve\n\n" +
				"import (\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc f() { synctest.Wait(); time.Sleep(1) }\n"},
		},
	},
	"packages that start goroutines look for leaks": {
		{
			name: "without goleak",
			files: map[string]string{
				"pkg/serve/a.go":      "package serve\n\nfunc f() {\n\tgo f()\n}\n",
				"pkg/serve/a_test.go": "package serve\n",
			},
			want: []string{"pkg/serve/a.go:4: starts a goroutine; no test of pkg/serve uses goleak"},
		},
		{
			name: "with goleak",
			files: map[string]string{
				"pkg/serve/a.go": "package serve\n\nfunc f() {\n\tgo f()\n}\n",
				"pkg/serve/a_test.go": "package serve\n\nimport (\n\t\"testing\"\n\n\t\"go.uber.org/goleak\"\n)\n\n" +
					"func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }\n",
			},
		},
	},
	"every package has one package comment": {
		{
			name: "none, two, and one that does not say its name",
			files: map[string]string{
				"pkg/none/a.go":  "package none\n",
				"pkg/two/a.go":   "// Package two is one.\npackage two\n",
				"pkg/two/b.go":   "// Package two is two.\npackage two\n",
				"pkg/other/a.go": "// Here be dragons.\npackage other\n",
			},
			want: []string{
				"pkg/none: 0 package comments",
				"pkg/other/a.go:1: the comment does not begin with \"Package other\"",
				"pkg/two: 2 package comments",
			},
		},
		{
			name: "one, a program's, and one of a package of tests",
			files: map[string]string{
				"pkg/one/a.go":       "// Package one is one.\npackage one\n",
				"pkg/one/b.go":       "package one\n",
				"cmd/server/main.go": "// Server serves.\npackage main\n",
				"test/e2e/a_test.go": "// Package e2e tests.\npackage e2e\n",
			},
		},
	},
	"files are short": {
		{
			name: "a long file and a long test",
			files: map[string]string{
				"pkg/serve/a.go":      "package serve\n" + strings.Repeat("\n", maxLines),
				"pkg/serve/a_test.go": "package serve\n" + strings.Repeat("\n", maxTestLines),
			},
			want: []string{
				"pkg/serve/a.go: 401 lines, of at most 400",
				"pkg/serve/a_test.go: 601 lines, of at most 600",
			},
		},
		{
			name: "the longest that may be, and a generated one",
			files: map[string]string{
				"pkg/serve/a.go": "package serve\n" + strings.Repeat("\n", maxLines-1),
				"pkg/serve/z.go": "// Code generated by a test. DO NOT EDIT.\n\npackage serve\n" + strings.Repeat("\n", maxLines),
			},
		},
	},
	"no unfinished work without a reason": {
		{
			name: "no reason",
			files: map[string]string{
				"pkg/serve/a.go": "package serve\n\n// TODO: all of it\nvar a int // FIXME\n",
			},
			want: []string{"pkg/serve/a.go:3: TODO", "pkg/serve/a.go:4: FIXME"},
		},
		{
			name: "a reason, and a name that is none",
			files: map[string]string{
				"pkg/serve/a.go": "package serve\n\n" + marker("TODO", "v1.38") + "\nvar a = context.TODO()\n",
			},
		},
	},
	"no paths of one machine": {
		{
			name: "in any file",
			files: map[string]string{
				"README.md":      "one\nsee /wo" + "rk/main\n",
				"pkg/serve/a.go": "package serve\n\nconst a = \"/ho" + "me/ann/peerproxy\"\n",
			},
			want: []string{"README.md:2: /wo" + "rk/", "pkg/serve/a.go:3: /ho" + "me/ann/"},
		},
		{
			name:  "a hash, and a path inside the repository",
			files: map[string]string{"go.sum": "h1:/ro" + "ot/=\n", "README.md": "pkg/wo" + "rk/x, /usr/bin/env\n"},
		},
	},
	"direct requirements have a reason": {
		{
			name: "in a block and alone",
			files: map[string]string{
				"cmd/go.mod": "module m/cmd\n\nrequire k8s.io/kubernetes v1.37.2\n\nrequire (\n" +
					"\tk8s.io/api v0.37.2\n\tk8s.io/utils v0.0.0 // indirect\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.37.2\n)\n",
			},
			want: []string{
				"cmd/go.mod:3: k8s.io/kubernetes v1.37.2 has no reason",
				"cmd/go.mod:6: k8s.io/api v0.37.2 has no reason",
			},
		},
		{
			name: "beside and above",
			files: map[string]string{
				"cmd/go.mod": "module m/cmd\n\nrequire k8s.io/kubernetes v1.37.2 // the server\n\nrequire (\n" +
					"\t// types\n\tk8s.io/api v0.37.2\n)\n",
			},
		},
	},
}

func TestEachRuleCanFail(t *testing.T) {
	for _, rule := range Rules {
		t.Run(rule.Name, func(t *testing.T) {
			failed := false
			for _, sample := range samples[rule.Name] {
				failed = failed || len(sample.want) > 0
				t.Run(sample.name, func(t *testing.T) { sample.run(t, rule) })
			}
			if !failed {
				t.Error("no sample breaks this rule")
			}
			if rule.Mend == "" {
				t.Error("the rule does not say how to mend what breaks it")
			}
		})
	}
}

func (s sample) run(t *testing.T, rule Rule) {
	t.Helper()
	root := fstest.MapFS{"go.mod": {Data: []byte("module m\n")}}
	for name, content := range s.files {
		root[name] = &fstest.MapFile{Data: []byte(content)}
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, finding := range rule.Check(tree) {
		got = append(got, finding.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, s.want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(s.want, "\n"))
	}
}
