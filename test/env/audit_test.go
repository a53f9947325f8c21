package env

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const auditSample = `{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces","user":{"username":"admin"},"userAgent":"cvo","objectRef":{"resource":"namespaces","apiVersion":"v1"},"responseStatus":{"code":201},"responseObject":{"metadata":{"name":"a","resourceVersion":"7"}},"requestReceivedTimestamp":"2026-01-02T03:04:05.123456Z","stageTimestamp":"2026-01-02T03:04:05.223456Z"}

{"stage":"ResponseStarted","verb":"watch"}
{"stage":"ResponseComplete","verb":"patch","requestURI":"/apis/x?dryRun=All","objectRef":{"resource":"widgets","apiGroup":"x","name":"b","namespace":"c","subresource":"status"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"de`

func TestParseAudit(t *testing.T) {
	events, err := ParseAudit(strings.NewReader(auditSample))
	require.NoError(t, err)
	require.Len(t, events, 2, "stages other than the last and an incomplete line are left out")
	assert.Equal(t, "namespaces a", events[0].Object.String(), "the name of a created object comes from the answer")
	assert.Equal(t, int64(100), events[0].Done.Sub(events[0].Received).Milliseconds())
	assert.True(t, events[0].Write())
	assert.Equal(t, "widgets.x c/b/status", events[1].Object.String())
	assert.False(t, events[1].Write(), "a dry run writes nothing")

	_, err = ParseAudit(strings.NewReader("{\n"))
	assert.ErrorContains(t, err, "line 1")
}

func FuzzParseAudit(f *testing.F) {
	f.Add(auditSample)
	f.Fuzz(func(t *testing.T, log string) {
		events, _ := ParseAudit(strings.NewReader(log))
		assert.LessOrEqual(t, len(events), strings.Count(log, "\n"))
	})
}

func TestChangesTellsRealChangesWhateverTheOrderOfTheLog(t *testing.T) {
	write := func(name, resourceVersion string) AuditEvent {
		return AuditEvent{Verb: "patch", Code: 200, Object: AuditObject{Resource: "configmaps", Name: name}, ResourceVersion: resourceVersion}
	}
	log := []AuditEvent{
		write("a", "12"), write("a", "11"), // logged the wrong way round
		write("a", "12"), // changed nothing
		write("b", "12"), // another object
		write("a", "13"),
	}
	assert.Equal(t, []AuditEvent{log[0], log[1], log[3], log[4]}, Changes(log))
}

func TestChangesLeavesOutWhatIsOlderThanTheRequest(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	write := func(verb, name, resourceVersion string, received, done int) AuditEvent {
		return AuditEvent{
			Verb: verb, Code: 200, Object: AuditObject{Resource: "configmaps", Name: name}, ResourceVersion: resourceVersion,
			Received: noon.Add(time.Duration(received) * time.Second), Done: noon.Add(time.Duration(done) * time.Second),
		}
	}
	log := []AuditEvent{
		write("patch", "a", "11", 0, 1),
		write("patch", "b", "15", 3, 4),  // 12 to 14 are lost
		write("patch", "a", "13", 5, 6),  // changed nothing: the lost write to a did
		write("patch", "c", "14", 3, 7),  // came before 15 was answered
		write("delete", "d", "12", 8, 9), // answers with what it deleted
		write("patch", "a", "16", 10, 11),
	}
	assert.Equal(t, []AuditEvent{log[0], log[1], log[3], log[4], log[5]}, Changes(log))
}
