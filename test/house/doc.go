// Package house holds the rules of this repository that a compiler does not
// know: which package may import which, what library code must not call, and
// what every package and file owes its reader.
//
// A [Rule] looks at a [Tree], the parsed files of a repository, and returns
// what breaks it. The tests run every rule on this repository, and on small
// trees in memory that break it: a rule that cannot fail says nothing.
package house
