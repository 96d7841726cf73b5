package document

import (
	"net/http/httptest"
	"strings"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
)

// recorder is a sink that keeps the response objects.
type recorder []string

func (r *recorder) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		if event.ResponseObject != nil {
			*r = append(*r, string(event.ResponseObject.Raw))
		}
	}
	return true
}

func TestTheDocumentIsInTheAuditLogWhereThePolicyAsksForIt(t *testing.T) {
	for level, want := range map[auditinternal.Level]int{auditinternal.LevelMetadata: 0, auditinternal.LevelRequestResponse: 1} {
		ctx := audit.WithAuditContext(t.Context())
		var recorded recorder
		event := audit.AuditContextFrom(ctx)
		if err := event.Init(audit.RequestAuditConfig{Level: level}, &recorded); err != nil {
			t.Fatal(err)
		}
		s, w := New(), httptest.NewRecorder()
		r := newRequest("GET", "/apis", "Accept", acceptProtobuf).WithContext(ctx)
		request, _ := s.Parse(r)
		s.Serve(w, r, twoServers(), request)
		event.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
		if len(recorded) != want || want > 0 && !strings.Contains(recorded[0], `"resource":"gizmos"`) {
			t.Errorf("at level %s the log has %v", level, recorded)
		}
	}
}
