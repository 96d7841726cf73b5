package document

import (
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
		for path, accept := range map[string]string{"/apis": acceptProtobuf, "/apis/" + testGroup(1).Name + "/v1": "application/yaml"} {
			ctx := audit.WithAuditContext(t.Context())
			var recorded recorder
			event := audit.AuditContextFrom(ctx)
			if err := event.Init(audit.RequestAuditConfig{Level: level}, &recorded); err != nil {
				t.Fatal(err)
			}
			serve(t, New(), twoServers(), newRequest("GET", path, "Accept", accept).WithContext(ctx))
			event.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
			if len(recorded) != want || want > 0 && !strings.Contains(recorded[0], `"gizmos"`) {
				t.Errorf("%s at level %s: the log has %v", path, level, recorded)
			}
		}
	}
}
