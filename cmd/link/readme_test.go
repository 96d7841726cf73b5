package link_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README shows the example as it is compiled.
func TestTheReadmeShowsTheExample(t *testing.T) {
	_, shown, _ := strings.Cut(read(t, "../../README.md"), "```go\n")
	shown, _, found := strings.Cut(shown, "```")
	if !found {
		t.Fatal("the README has no Go code")
	}
	if !strings.Contains(unindented(read(t, "example_test.go")), unindented(shown)) {
		t.Errorf("example_test.go lacks what the README shows:\n%s", shown)
	}
}

// The README's go.mod lines name the releases that cmd is built and tested with.
func TestTheReadmeNamesTheReleases(t *testing.T) {
	readme := read(t, "../../README.md")
	required := regexp.MustCompile(`require k8s.io/kubernetes (\S+)`)
	for modfile, prefix := range map[string]string{"../go.mod": "k8s.io/kubernetes ", "../go-1.36.mod": "k8s.io/kubernetes@"} {
		release := required.FindStringSubmatch(read(t, modfile))
		if release == nil {
			t.Errorf("%s requires no k8s.io/kubernetes", modfile)
			continue
		}
		for _, named := range regexp.MustCompile(regexp.QuoteMeta(prefix)+`(v\S+)`).FindAllStringSubmatch(readme, -1) {
			if named[1] != release[1] {
				t.Errorf("the README has %q, %s has %s", named[0], modfile, release[1])
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func unindented(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
