package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// judge checks the answer to a request against the laws. It returns what is
// wrong with it, or nil.
func (h *history) judge(o *outcome) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.at(o.server.id, o.from)
	switch {
	case a == nil:
		return nil // it went at the same moment
	case a.brand != "":
		return nil // it answers as it likes
	case o.lost && o.ask.verb == "watch" && !a.stopping.IsZero():
		return fmt.Errorf("a watch outlived the server, which stopped in good order")
	case o.lost, !a.stopping.IsZero():
		return nil // the server went, and its client knows nothing
	}
	if by := o.header.Get(startingHeader); by != "" {
		return h.judgeRefusal(a, by, o)
	}
	if err := checkForm(o); err != nil {
		return err
	}
	if spent := o.to.Sub(o.from); o.ask.verb != "watch" && spent > longest && !h.mayTakeLong(a, o) {
		return fmt.Errorf("it took %v", spent)
	}
	if o.ask.path != "" {
		return h.judgeDocument(a, o)
	}
	if hung := h.hung(a, o); hung > settled {
		return fmt.Errorf("it hung for %v", hung)
	}
	return h.judgeResource(a, o)
}

// hung is for how long a request went on while the peer that answered it could
// not be reached any more.
func (h *history) hung(a *span, o *outcome) (longest time.Duration) {
	by := o.header.Get(serverHeader)
	if by == "" || by == a.id {
		return 0
	}
	for _, t := range h.troubles {
		if t.what != "frozen" && t.what != "parted" || t.etcd || !t.touches(a.id, by) || t.what == "frozen" && t.a == a.id {
			continue
		}
		both := period{latest(o.from, t.from), o.to}
		if !t.to.IsZero() && t.to.Before(both.to) {
			both.to = t.to
		}
		longest = max(longest, both.to.Sub(both.from))
	}
	return longest
}

// checkForm checks what clients are told with an error: when to ask again, if
// they may, and no address.
func checkForm(o *outcome) error {
	retry := o.header.Get("Retry-After")
	switch {
	case o.code == http.StatusServiceUnavailable && retry != "1":
		return fmt.Errorf("503 with Retry-After %q", retry)
	case o.code == http.StatusGatewayTimeout && retry != "":
		return fmt.Errorf("504 with Retry-After %q", retry)
	case o.code >= 500 && strings.Contains(string(o.body), "10.0.0."):
		return fmt.Errorf("an address: %s", o.body)
	}
	return nil
}

// longest is how long a request may take: three attempts, of which each is given
// up after 5 s.
const longest = 16 * time.Second

// mayTakeLong reports whether something made a request last that is no failure:
// bytes that come slowly, a peer that takes its time, or this server's own frost.
func (h *history) mayTakeLong(a *span, o *outcome) bool {
	return slices.ContainsFunc(h.troubles, func(t *trouble) bool {
		return t.overlaps(period{o.from, o.to}) && (t.what == "slow" || t.what == string(lieSilent) || t.what == "frozen" && t.a == a.id)
	})
}

func (h *history) judgeResource(a *span, o *outcome) error {
	r, verb := o.ask.resource, o.ask.verb
	local := a.serves(r, verb)
	if custom, answer := h.judgeCustom(a, o); custom {
		return answer
	}
	switch {
	case o.aborted:
		if verb == "watch" {
			return fmt.Errorf("a watch was cut off")
		}
		return h.checkReason(a, o, false)
	case o.code == http.StatusNotFound && namesObject(o):
		return nil // the answer of a server that serves it
	case o.code == http.StatusNotFound, o.code == http.StatusMethodNotAllowed:
		switch {
		case local:
			return fmt.Errorf("%d for what the server itself serves", o.code)
		case h.mustKnow(a, r, verb, o.from) && h.mustKnow(a, r, verb, o.to):
			return fmt.Errorf("%d for what a member is known to serve", o.code)
		case h.mustDoubt(a, r, verb, o.from, o.to):
			return fmt.Errorf("%d for what a member serves whose document is not known", o.code)
		}
		return nil
	case o.code == http.StatusServiceUnavailable:
		return h.checkReason(a, o, true)
	case o.code == http.StatusGatewayTimeout:
		if !o.ask.unsafe() && o.to.Sub(o.from) < patience {
			return fmt.Errorf("504 for a safe request")
		}
		return h.checkReason(a, o, false)
	case o.code < 200 || o.code > 299:
		return fmt.Errorf("%d", o.code)
	}
	return nil
}

// namesObject reports whether a 404 is about an object, not about a resource.
func namesObject(o *outcome) bool {
	var status metav1.Status
	return json.Unmarshal(o.body, &status) == nil && status.Details != nil && status.Details.Name != ""
}

// checkReason checks that there is a reason why a request got no answer. doubt
// tells whether it may be that what some member serves is not known.
func (h *history) checkReason(a *span, o *outcome, doubt bool) error {
	r, verb := o.ask.resource, o.ask.verb
	if a.serves(r, verb) {
		return fmt.Errorf("%d for what the server itself serves", o.code)
	}
	others := h.others(a, o.to)
	for id, lives := range others {
		if last := lives[len(lives)-1]; h.mustServe(a, last, r, verb, o.from, o.to) && h.canFailOver(o) {
			return fmt.Errorf("%d, while %s serves it and is in reach", o.code, id)
		}
	}
	for _, lives := range others {
		if h.mayBelieve(a, lives, r, verb, o.from) || h.mayBelieve(a, lives, r, verb, o.to) {
			return nil
		}
	}
	if doubt && builtIn(r.group) && (h.mayDoubt(a, o.from) || h.mayDoubt(a, o.to)) {
		return nil
	}
	return fmt.Errorf("%d without a reason", o.code)
}

// canFailOver reports whether another candidate may be asked after one failed
// with this answer: that of an unsafe request may be lost with its connection.
func (h *history) canFailOver(o *outcome) bool {
	return o.code == http.StatusServiceUnavailable
}

// settled is how long a link has to be calm for broken connections on it to be
// noticed.
const settled = 6 * time.Second

// mustServe reports whether b must have been able to answer a request that came
// by a. It needs mu.
func (h *history) mustServe(a, b *span, r resource, verb string, from, to time.Time) bool {
	if !b.serves(r, verb) || !b.stopping.IsZero() || !b.to.IsZero() || b.from.After(from.Add(-settled)) {
		return false
	}
	if known, ok := h.learnt(a, b, from); !ok || known.After(from) {
		return false
	}
	since, calm := h.calmSince(a.id, b.id, to, false)
	return calm && (since.Equal(h.began) || !since.After(from.Add(-settled)))
}

// builtIn reports whether a group looks like a built-in one: only those are
// doubted.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// judgeDocument checks a merged document.
func (h *history) judgeDocument(a *span, o *outcome) error {
	switch {
	case o.aborted:
		return fmt.Errorf("cut off")
	case o.code == http.StatusServiceUnavailable && o.from.Before(h.listed(a).Add(readyWithin)):
		return nil
	case o.code != http.StatusOK:
		return h.judgeLegacy(a, o)
	}
	listed, err := listedIn(o)
	if err != nil || listed == nil {
		return err
	}
	for _, version := range versions {
		for r, verbs := range version {
			for _, verb := range verbs {
				if err := h.judgeListing(a, o, listed, r, verb); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readyWithin is when merged documents are served at the latest.
const readyWithin = 11 * time.Second

func (h *history) judgeListing(a *span, o *outcome, listed table, r resource, verb string) error {
	if (o.ask.path == "/api") != (r.group == "") {
		return nil
	}
	if nopeer(o) {
		if listed.has(r, verb) != a.serves(r, verb) {
			return fmt.Errorf("nopeer: %s %s is wrong", verb, r)
		}
		return nil
	}
	if !listed.has(r, verb) {
		if a.serves(r, verb) || h.mustKnow(a, r, verb, o.from) && h.mustKnow(a, r, verb, o.to) {
			return fmt.Errorf("%s %s is missing", verb, r)
		}
		if h.mustWaitFor(a, r, verb, o.to) {
			return fmt.Errorf("%s %s is missing from a document that should have waited for it", verb, r)
		}
		return nil
	}
	if a.serves(r, verb) {
		return nil
	}
	for _, lives := range h.others(a, o.to) {
		if h.mayBelieve(a, lives, r, verb, o.from) || h.mayBelieve(a, lives, r, verb, o.to) {
			return nil
		}
	}
	return fmt.Errorf("%s %s is listed, and no one has it", verb, r)
}

func nopeer(o *outcome) bool { return strings.Contains(o.ask.accept, "profile=nopeer") }

// listedIn is what an aggregated document lists, nil for another.
func listedIn(o *outcome) (table, error) {
	if !strings.Contains(o.ask.accept, "APIGroupDiscoveryList") {
		return nil, nil
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(o.body, &list); err != nil {
		return nil, err
	}
	listed := table{}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			for _, r := range version.Resources {
				listed[resource{group.Name, version.Version, r.Resource, ""}] = r.Verbs
				for _, sub := range r.Subresources {
					listed[resource{group.Name, version.Version, r.Resource, sub.Subresource}] = sub.Verbs
				}
			}
		}
	}
	return listed, nil
}

// judgeLegacy checks that there is a reason for a group or group-version not to
// be told of.
func (h *history) judgeLegacy(a *span, o *outcome) error {
	group, version := groupVersionOf(o.ask.path)
	if o.code != http.StatusNotFound && o.code != http.StatusServiceUnavailable || group == "" {
		return fmt.Errorf("%d", o.code)
	}
	believed := false
	for r, verb := range inGroupVersion(group, version) {
		if a.serves(r, verb) {
			return fmt.Errorf("%d for what the server itself serves", o.code)
		}
		if o.code == http.StatusNotFound && h.mustKnow(a, r, verb, o.from) && h.mustKnow(a, r, verb, o.to) {
			return fmt.Errorf("404 for what a member is known to serve")
		}
		if o.code == http.StatusNotFound && h.mustDoubt(a, r, verb, o.from, o.to) {
			return fmt.Errorf("404 for what a member serves whose document is not known")
		}
		for _, lives := range h.others(a, o.to) {
			if o.code == http.StatusServiceUnavailable && h.mustServe(a, lives[len(lives)-1], r, verb, o.from, o.to) && h.recordLives(a, lives[len(lives)-1], o) {
				return fmt.Errorf("503 for what a member in reach serves")
			}
			believed = believed || h.mayBelieve(a, lives, r, verb, o.from) || h.mayBelieve(a, lives, r, verb, o.to)
		}
	}
	if o.code == http.StatusNotFound || believed || builtIn(group) && (h.mayDoubt(a, o.from) || h.mayDoubt(a, o.to)) {
		return nil
	}
	return fmt.Errorf("503 without a reason")
}

// recordLives reports whether a member's record was certainly there, and seen.
func (h *history) recordLives(a, b *span, o *outcome) bool {
	since, calm := h.calmEtcdSince(a.id, b.id, o.to)
	return calm && !since.After(o.from.Add(-renewal-learning))
}

// groupVersionOf returns what a legacy document's path is about.
func groupVersionOf(path string) (group, version string) {
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return "", ""
	}
	group, version, _ = strings.Cut(rest, "/")
	return group, version
}

// inGroupVersion yields the built-in resources of a group, or a group-version.
func inGroupVersion(group, version string) func(yield func(resource, string) bool) {
	return func(yield func(resource, string) bool) {
		for _, t := range versions {
			for _, r := range slices.Collect(maps.Keys(t)) {
				if r.group == group && (version == "" || r.version == version) && !yield(r, "get") {
					return
				}
			}
		}
	}
}
