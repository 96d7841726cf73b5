package house

import (
	"path"
	"strings"
)

// checkRequirements looks through every modfile for direct requirements that
// say nothing of why they are there.
func checkRequirements(tree *Tree) []Finding {
	var findings []Finding
	for _, text := range tree.Texts {
		if path.Ext(text.Path) == ".mod" {
			findings = append(findings, checkModfile(text)...)
		}
	}
	return findings
}

func checkModfile(text Text) []Finding {
	var findings []Finding
	inBlock, above := false, ""
	for number, line := range strings.Split(string(text.Content), "\n") {
		line = strings.TrimSpace(line)
		requirement, single := strings.CutPrefix(line, "require ")
		switch {
		case strings.HasPrefix(line, "require ("):
			inBlock = true
		case line == ")":
			inBlock = false
		case single, inBlock && line != "" && !strings.HasPrefix(line, "//"):
			module, comment, _ := strings.Cut(requirement, "//")
			if strings.TrimSpace(comment) == "" && !strings.HasPrefix(above, "//") {
				findings = append(findings, finding(text.Path, number+1, "%s has no reason", strings.TrimSpace(module)))
			}
		}
		above = line
	}
	return findings
}
