package house

import (
	"os"
	"testing"
)

func TestHouse(t *testing.T) {
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range Rules {
		t.Run(rule.Name, func(t *testing.T) {
			for _, finding := range rule.Check(tree) {
				t.Errorf("%s\n\tto mend it: %s", finding, rule.Mend)
			}
		})
	}
}
