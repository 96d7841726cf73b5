package serve

import (
	"testing"

	"peerproxy.internal/pkg/snapshot"
)

func TestDecideResource(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  origin
		route snapshot.Kind
		want  action
	}{
		{"local wins", fromClient, snapshot.Local, serveLocally},
		{"what only a peer serves is forwarded", fromClient, snapshot.Peers, forwardToPeer},
		{"so is what only an unreachable peer serves, to its last address", fromClient, snapshot.Unreachable, forwardToPeer},
		{"what may be served somewhere is no 404", fromClient, snapshot.Unknown, refuse},
		{"what no one serves is the local chain's 404", fromClient, snapshot.Absent, serveLocally},

		{"a peer's request is served where it is local", fromPeer, snapshot.Local, serveLocally},
		{"a peer's request makes no second hop", fromPeer, snapshot.Peers, refuseMarked},
		{"nor to an unreachable peer", fromPeer, snapshot.Unreachable, refuseMarked},
		{"a peer's request in doubt is refused", fromPeer, snapshot.Unknown, refuseMarked},
		{"a peer's request for what no one serves gets the 404 and the marker", fromPeer, snapshot.Absent, serveLocallyMarked},

		{"the own client is served locally", fromSelf, snapshot.Local, serveLocally},
		{"also what a peer serves", fromSelf, snapshot.Peers, serveLocally},
		{"also what an unreachable peer serves", fromSelf, snapshot.Unreachable, serveLocally},
		{"also in doubt", fromSelf, snapshot.Unknown, serveLocally},
		{"also what no one serves", fromSelf, snapshot.Absent, serveLocally},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideResource(tc.from, tc.route); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestDecideDocument(t *testing.T) {
	for _, tc := range []struct {
		name         string
		from         origin
		alone, ready bool
		want         action
	}{
		{"a client gets the merged document", fromClient, false, true, serveMerged},
		{"profile=nopeer gets the local one", fromClient, true, true, serveLocally},
		{"also before the peers are known", fromClient, true, false, serveLocally},
		{"a merged document is never partial", fromClient, false, false, refuse},
		{"a peer gets the local document", fromPeer, false, true, serveLocally},
		{"the own client does", fromSelf, false, true, serveLocally},
		{"and need not wait", fromSelf, false, false, serveLocally},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := decideDocument(tc.from, tc.alone, tc.ready); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
