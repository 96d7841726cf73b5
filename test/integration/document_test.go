package integration

import (
	"net/http"
	"slices"
	"testing"
)

// What a server asks its peers for to make its documents it asks for itself,
// whoever asks it, and marked: so a peer answers for itself alone.
func TestAPeerIsAskedForDocumentsInTheServersOwnName(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	b := c.actor("b", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"paths":{}}`))
	}, ours())
	a := c.ready(spec{id: "a", openAPI: true})
	a.learns(ours())
	alice := a.as("alice")
	alice.document("/apis", flat(forged())...)
	eventually(t, "A asks for the peer's OpenAPI", func() bool {
		alice.want(http.StatusOK, http.MethodGet, "/openapi/v3", "", flat(forged())...)
		return len(under(b, "/openapi/v3")) > 0
	})
	for _, path := range []string{"/api", "/apis", "/openapi/v3"} {
		asked := false
		for _, request := range b.Requests() {
			if request.URI != path {
				continue
			}
			asked = true
			for name, want := range map[string][]string{
				"X-Remote-User":         {"system:apiserver"},
				"X-Remote-Uid":          {"system:apiserver"},
				"X-Remote-Group":        {"system:authenticated"},
				"X-Remote-Extra-Scopes": nil,
				loopHeader:              {"true"},
			} {
				if got := request.Header[name]; !slices.Equal(got, want) {
					t.Errorf("%s is asked for with %s: %q, want %q", path, name, got, want)
				}
			}
		}
		if !asked {
			t.Errorf("the peer was never asked for %s", path)
		}
	}
}
