package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// ask is what a client asks a server for: a resource with a verb, or a document.
type ask struct {
	resource resource
	verb     string
	// absent asks for an object that does not exist.
	absent bool
	// path and accept are a document's.
	path, accept string
	// lasts is how long a watch is held.
	lasts time.Duration
}

func (a ask) String() string {
	if a.path != "" {
		return "GET " + a.path + " " + a.accept
	}
	return a.verb + " " + a.resource.String()
}

// patience is how long a client waits.
const patience = time.Minute

func (a ask) request(ctx context.Context, id string) *http.Request {
	method, url := a.url()
	var body *strings.Reader
	r := httptest.NewRequestWithContext(ctx, method, url, nil)
	if a.verb == "create" || a.verb == "update" {
		body = strings.NewReader(`{"kind":"Thing","apiVersion":"v1"}`)
		r = httptest.NewRequestWithContext(ctx, method, url, body)
	}
	r.Header.Set(requestHeader, id)
	if a.accept != "" {
		r.Header.Set("Accept", a.accept)
	}
	return r
}

func (a ask) url() (method, url string) {
	if a.path != "" {
		return http.MethodGet, a.path
	}
	url = "/apis/" + a.resource.group + "/" + a.resource.version
	if a.resource.group == "" {
		url = "/api/" + a.resource.version
	}
	url += "/" + a.resource.name
	name := "/one"
	if a.absent {
		name = "/absent"
	}
	sub := ""
	if a.resource.sub != "" {
		sub = "/" + a.resource.sub
	}
	switch a.verb {
	case "list":
		return http.MethodGet, url
	case "watch":
		return http.MethodGet, url + "?watch=true"
	case "create":
		return http.MethodPost, url
	case "deletecollection":
		return http.MethodDelete, url
	case "delete":
		return http.MethodDelete, url + name + sub
	case "update":
		return http.MethodPut, url + name + sub
	}
	return http.MethodGet, url + name + sub
}

func (a ask) unsafe() bool {
	method, _ := a.url()
	return method != http.MethodGet
}

// outcome is what became of a request.
type outcome struct {
	id       string
	ask      ask
	server   *life
	from, to time.Time
	code     int
	header   http.Header
	body     []byte
	// lost is true if the server went in between, aborted if the answer was cut off.
	lost, aborted bool
}

func (o *outcome) String() string {
	result := fmt.Sprint(o.code)
	switch {
	case o.lost:
		result = "lost"
	case o.aborted:
		result += " cut off"
	}
	return fmt.Sprintf("%s at %s: %s: %s by %q after %v", o.id, o.server.id, o.ask, result, o.header.Get(serverHeader), o.to.Sub(o.from))
}

var errServerGone = errors.New("the server is gone")

// send sends a request to a server and notes what became of it.
func (l *life) send(a ask, o *outcome) {
	ctx, cancel := context.WithTimeout(l.world.ctx, patience)
	defer cancel()
	if a.verb == "watch" {
		defer time.AfterFunc(a.lasts, cancel).Stop()
	}
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	// As in a server of net/http: an answer can be cut off.
	ctx = context.WithValue(ctx, http.ServerContextKey, l.server)
	// The end of the process ends its connections, and so its requests.
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-l.gone:
			lose(errServerGone)
		case <-done:
		}
	}()
	o.ask, o.server, o.from = a, l, time.Now()
	recorder := httptest.NewRecorder()
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "request", o.id, "server", l.id)
	o.aborted = l.call(recorder, a.request(klog.NewContext(ctx, logger), o.id))
	o.to = time.Now()
	o.code, o.header, o.body = recorder.Code, recorder.Result().Header, recorder.Body.Bytes()
	select {
	case <-l.gone:
		o.lost = true
	default:
	}
}

// call calls the handler and reports whether it aborted the answer.
func (l *life) call(w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if panicked := recover(); panicked == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			aborted = true
		} else if panicked != nil {
			panic(panicked)
		}
	}()
	l.serveClient(w, r)
	return false
}
