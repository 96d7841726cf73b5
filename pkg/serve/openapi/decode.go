package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Bounds of a peer's document. Decoded, an object takes up to a kilobyte; a
// server's own documents have one in about 150 bytes, nested less than a
// hundred deep.
const (
	maxObjects = 1 << 19
	maxDepth   = 1000
	// maxHash bounds the length of a hash; a stock server's has 128 digits.
	maxHash = 256
)

var (
	errTooDeep = errors.New("the document is nested too deep")
	errTooMany = errors.New("the document has too many objects")
)

// checkShape looks over a document before it is decoded.
func checkShape(text []byte) error {
	depth, objects, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			objects++
		case c == '}' || c == ']':
			depth--
		}
		if depth > maxDepth {
			return errTooDeep
		}
		if objects > maxObjects {
			return errTooMany
		}
	}
	return nil
}

func decodeV3(text []byte) (*spec3.OpenAPI, error) {
	document := &spec3.OpenAPI{}
	if err := document.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v3: %w", err)
	}
	return document, nil
}

func decodeV2(text []byte) (*spec.Swagger, error) {
	document := &spec.Swagger{}
	if err := document.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v2: %w", err)
	}
	return document, nil
}

// decodeIndex returns a server's index as it is: where its documents are, by
// name.
func decodeIndex(text []byte) (map[string]string, error) {
	var index handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("decode the index of OpenAPI v3: %w", err)
	}
	if index.Paths == nil {
		return nil, errors.New("decode the index of OpenAPI v3: it has no paths")
	}
	urls := make(map[string]string, len(index.Paths))
	for name, document := range index.Paths {
		urls[name] = document.ServerRelativeURL
	}
	return urls, nil
}

// hashIn returns the hash in the URL of a document, and false if the URL is not
// one that a server makes for a document of that name.
func hashIn(name, at string) (string, bool) {
	u, err := url.Parse(at)
	if err != nil || u.IsAbs() || u.Host != "" || name == "" || u.Path != prefixV3+name || path.Clean(u.Path) != u.Path {
		return "", false
	}
	hash := u.Query().Get(hashOption)
	return hash, hash != "" && len(hash) <= maxHash
}
