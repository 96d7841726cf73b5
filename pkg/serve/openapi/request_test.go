package openapi

import "testing"

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, method, target, accept string
		want                         Request
		ok                           bool
	}{
		{name: "the index", target: "/openapi/v3", want: Request{path: pathV3}, ok: true},
		{name: "the index as anything", target: "/openapi/v3", accept: "text/html", want: Request{path: pathV3}, ok: true},
		{name: "the index alone", target: "/openapi/v3", accept: "application/json;profile=nopeer", want: Request{path: pathV3, Alone: true}, ok: true},
		{name: "a document", target: "/openapi/v3/apis/apps/v1?hash=1", accept: "application/json", want: Request{path: prefixV3, name: "apis/apps/v1"}, ok: true},
		{name: "a document as protobuf", target: "/openapi/v3/api/v1", accept: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", want: Request{path: prefixV3, name: "api/v1", format: formatProtobuf}, ok: true},
		{name: "under the old name", target: "/openapi/v3/api/v1", accept: "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", want: Request{path: prefixV3, name: "api/v1", format: formatProtobuf}, ok: true},
		{name: "what weighs more", target: "/openapi/v2", accept: "application/json;q=0.5,application/com.github.proto-openapi.spec.v2@v1.0+protobuf", want: Request{path: pathV2, format: formatProtobuf}, ok: true},
		{name: "options that mean nothing here", target: "/openapi/v2", accept: "application/json;g=x;v=y;as=z;stream=watch;sv=1", want: Request{path: pathV2}, ok: true},
		{name: "alone", target: "/openapi/v2", accept: "text/html,application/json;profile=nopeer", want: Request{path: pathV2, Alone: true}, ok: true},
		{name: "anything", target: "/openapi/v2", accept: "*/*", want: Request{path: pathV2}, ok: true},
		{name: "HEAD", method: "HEAD", target: "/openapi/v2", want: Request{path: pathV2}, ok: true},
		{name: "what no one writes", target: "/openapi/v2", accept: "text/html"},
		{name: "a document that no one writes", target: "/openapi/v3/api/v1", accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"},
		{name: "another method", method: "POST", target: "/openapi/v3"},
		{name: "another path", target: "/openapi"},
		{name: "another version", target: "/openapi/v4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.method == "" {
				test.method = "GET"
			}
			r := newRequest(test.method, test.target)
			if test.accept != "" {
				r.Header.Set("Accept", test.accept)
			}
			got, ok := (&Server{}).Parse(r)
			if ok != test.ok || ok && got != test.want {
				t.Errorf("got %+v, %t; want %+v, %t", got, ok, test.want, test.ok)
			}
		})
	}
}
