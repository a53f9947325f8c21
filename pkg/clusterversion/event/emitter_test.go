package event_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/record"

	"github.com/cluster-version/cvo/pkg/clusterversion/event"
)

// TestMessagesAreSafeForTerminals emits a message with the name of a hostile file.
func TestMessagesAreSafeForTerminals(t *testing.T) {
	recorder := record.NewFakeRecorder(1)
	event.Emitter{Recorder: recorder}.Emit(&configv1.ClusterVersion{}, event.Event{Kind: "Warning", Reason: "Failed", Message: "we\x1b[31mb\r\a\nsecond line"})
	assert.Equal(t, "Warning Failed we?[31mb??\nsecond line", <-recorder.Events)
}

//threat:long-texts
func TestMessagesAreTruncated(t *testing.T) {
	recorder := record.NewFakeRecorder(1)
	event.Emitter{Recorder: recorder}.Emit(&configv1.ClusterVersion{}, event.Warning("Failed", "%s", strings.Repeat("x", 3<<20)))
	assert.LessOrEqual(t, len(<-recorder.Events), event.MaxMessage+len("Warning Failed "))
}
