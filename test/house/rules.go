package house

import "fmt"

// Rule is one rule of the house.
type Rule struct {
	Name string
	// Mend tells whoever broke the rule what to do.
	Mend  string
	Check func(*Tree) []Finding
}

// Finding is a place that breaks a rule.
type Finding struct {
	Path string
	Line int // from 1; 0 for the whole file or directory
	What string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Path, f.What)
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.What)
}

func finding(path string, line int, format string, args ...any) Finding {
	return Finding{Path: path, Line: line, What: fmt.Sprintf(format, args...)}
}

// Rules are all rules of the house.
var Rules = []Rule{
	{
		Name:  "imports keep to the table",
		Mend:  "move the code to the package that owns it, or take what you need as a one-method interface; a new package needs a row in the table of test/house/imports.go",
		Check: checkImportTable,
	},
	{
		Name:  "imports that have no place here",
		Mend:  "see the table of strangers in test/house/imports.go",
		Check: checkStrangers,
	},
	{
		Name:  "calls that library code does not make",
		Mend:  "see the table of banned names in test/house/names.go",
		Check: checkNames,
	},
	{
		Name:  "tests do not sleep in real time",
		Mend:  "run the test in a testing/synctest bubble, wait for a channel, or poll a condition with peertest.Eventually",
		Check: checkSleeps,
	},
	{
		Name:  "packages that start goroutines look for leaks",
		Mend:  "add func TestMain(m *testing.M) { goleak.VerifyTestMain(m) } to the package's tests",
		Check: checkLeaks,
	},
	{
		Name:  "every package has one package comment",
		Mend:  "tell in one file, doc.go if it is long, what the package is for, beginning with \"Package <name>\"",
		Check: checkPackageComments,
	},
	{
		Name:  "files are short",
		Mend:  "split the file where the subject changes",
		Check: checkLengths,
	},
	{
		Name:  "no unfinished work without a reason",
		Mend:  "finish it, or say what it waits for: " + marker("TODO", "reason"),
		Check: checkMarkers,
	},
	{
		Name:  "no paths of one machine",
		Mend:  "name the file from the repository's root, or make a temporary directory",
		Check: checkMachinePaths,
	},
	{
		Name:  "every way to a peer shows who asks",
		Mend:  "send through what pkg/transport has, name the file and the test of its identity in test/house/ways.go",
		Check: checkWays,
	},
	{
		Name:  "documents name tests that exist",
		Mend:  "give the test its name, or the document the test's",
		Check: checkNamedTests,
	},
	{
		Name:  "direct requirements have a reason",
		Mend:  "write at the end of the line, or above it, what the module is needed for: // reason",
		Check: checkRequirements,
	},
}
