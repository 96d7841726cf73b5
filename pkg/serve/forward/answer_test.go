package forward

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"peerproxy.internal/test/peertest"
)

func TestSaysNotServed(t *testing.T) {
	const (
		json  = "application/json"
		plain = "text/plain; charset=utf-8"
	)
	codecs := peertest.Codecs()
	named := apierrors.NewNotFound(schema.GroupResource{Group: "g", Resource: "things"}, "a").Status()
	noMethod := apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "pods"}, "patch").Status()
	bare := apierrors.NewGenericServerResponse(405, "", schema.GroupResource{}, "", "405: Method Not Allowed", 0, false).Status()
	notFound := apierrors.NewGenericServerResponse(404, "", schema.GroupResource{}, "", "", 0, false).Status()
	const fixed = `"message":"the server could not find the requested resource","reason":"NotFound"`
	denied := bare
	denied.Message, denied.Details = `admission webhook "w" denied the request: not here`, nil
	tests := []struct {
		name        string
		code        int
		contentType string
		body        string
		want        bool
	}{
		{"the mux's page", 404, plain, "404 page not found\n", true},
		{"the mux's page without charset", 404, "text/plain", "404 page not found\n", true},
		{"another page", 404, plain, "404 page not found", false},
		{"a page longer than it", 404, plain, "404 page not found\n\n", false},
		{"the page as 405", 405, plain, "404 page not found\n", false},
		{"the page as HTML", 404, "text/html", "404 page not found\n", false},
		{"no type", 404, "", "404 page not found\n", false},
		{"an object that is not there", 404, json, encodeStatus(t, codecs, json, named), false},
		{"the same in protobuf", 404, runtime.ContentTypeProtobuf, encodeStatus(t, codecs, runtime.ContentTypeProtobuf, named), false},
		{"the same in YAML", 404, runtime.ContentTypeYAML, encodeStatus(t, codecs, runtime.ContentTypeYAML, named), false},
		{"a method that the resource has not", 405, json, encodeStatus(t, codecs, json, noMethod), false},
		{"a path that is not there", 405, json, encodeStatus(t, codecs, json, bare), true},
		{"the same in protobuf", 405, runtime.ContentTypeProtobuf, encodeStatus(t, codecs, runtime.ContentTypeProtobuf, bare), true},
		{"the same in YAML", 405, runtime.ContentTypeYAML, encodeStatus(t, codecs, runtime.ContentTypeYAML, bare), true},
		{"a path that is nowhere", 404, json, encodeStatus(t, codecs, json, notFound), true},
		{"no details", 404, json, `{"kind":"Status","apiVersion":"v1","code":404,` + fixed + `}`, true},
		{"group alone", 404, json, `{"kind":"Status","apiVersion":"v1","code":404,` + fixed + `,"details":{"group":"g"}}`, false},
		{"kind alone", 404, json, `{"kind":"Status","apiVersion":"v1","code":404,` + fixed + `,"details":{"kind":"things"}}`, false},
		{"a webhook's denial", 405, json, encodeStatus(t, codecs, json, denied), false},
		{"another message", 404, json, `{"kind":"Status","apiVersion":"v1","code":404,"message":"gone","reason":"NotFound"}`, false},
		{"no message, no reason", 404, json, `{"kind":"Status","apiVersion":"v1","code":404}`, false},
		{"another reason", 404, json, `{"kind":"Status","apiVersion":"v1","code":404,"message":"the server could not find the requested resource","reason":"Gone"}`, false},
		{"a Status of another code", 404, json, `{"kind":"Status","apiVersion":"v1","code":403,` + fixed + `}`, false},
		{"another kind", 404, json, `{"kind":"Thing","apiVersion":"v1","code":404,` + fixed + `}`, false},
		{"cut off", 404, json, `{"kind":"Status","apiVersion":"v1","code":404`, false},
		{"empty", 404, json, "", false},
		{"unknown type", 404, "application/x", `{"kind":"Status","apiVersion":"v1","code":404}`, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := SaysNotServed(test.code, test.contentType, []byte(test.body), codecs.SupportedMediaTypes()); got != test.want {
				t.Errorf("got %t for %q", got, test.body)
			}
		})
	}
}

func encodeStatus(t *testing.T, codecs runtime.NegotiatedSerializer, mediaType string, status metav1.Status) string {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("no %s", mediaType)
	}
	var out strings.Builder
	if err := codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"}).Encode(&status, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func FuzzSaysNotServed(f *testing.F) {
	f.Add(404, "application/json", []byte(`{"kind":"Status","apiVersion":"v1","code":404}`))
	f.Add(405, "application/vnd.kubernetes.protobuf", []byte("k8s\x00"))
	decoders := peertest.Codecs().SupportedMediaTypes()
	f.Fuzz(func(_ *testing.T, code int, contentType string, body []byte) {
		SaysNotServed(code, contentType, body, decoders)
	})
}

func TestLongAnswerPasses(t *testing.T) {
	long := `{"kind":"Status","apiVersion":"v1","code":404,"message":"the server could not find the requested resource","reason":"NotFound"}` + strings.Repeat(" ", MaxPeeked)
	w := newWorld(t, &peertest.Peer{ID: "b", Handler: readThenAnswer(404, map[string][]string{"Content-Type": {"application/json"}}, long)})
	if got := w.do(w.request("GET", things, "")); got.code != 404 || got.body != long {
		t.Errorf("got %d, %d bytes", got.code, len(got.body))
	}
}
