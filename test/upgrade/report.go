package upgrade

import (
	"fmt"
	"io"
	"time"
)

// Report writes the counts of several runs as a Markdown table, a column each.
func Report(out io.Writer, results ...*Result) {
	fmt.Fprint(out, "| |")
	for _, r := range results {
		fmt.Fprintf(out, " %s |", r.Name)
	}
	fmt.Fprint(out, "\n|---|")
	for range results {
		fmt.Fprint(out, "---:|")
	}
	fmt.Fprint(out, "\n| time |")
	for _, r := range results {
		fmt.Fprintf(out, " %v |", r.Took.Round(time.Second))
	}
	for _, kind := range kinds {
		fmt.Fprintf(out, "\n| %s |", kind)
		for _, r := range results {
			fmt.Fprintf(out, " %d |", r.Counts.Of(kind))
		}
	}
	fmt.Fprintln(out)
}

// Examples writes the first examples of everything that a run noted.
func Examples(out io.Writer, r *Result) {
	for _, kind := range kinds {
		for _, example := range r.Counts.Examples(kind) {
			fmt.Fprintf(out, "%s, %s: %s\n", r.Name, kind, example)
		}
	}
}
