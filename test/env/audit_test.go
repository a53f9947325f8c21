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

func TestAuditEventsAreParsed(t *testing.T) {
	events, err := ParseAudit(strings.NewReader(auditSample))
	require.NoError(t, err)
	require.Len(t, events, 2, "other stages than the last and an incomplete line are omitted")
	assert.Equal(t, "namespaces a", events[0].Object.String(), "the name of a created object comes from the response")
	assert.Equal(t, int64(100), events[0].Done.Sub(events[0].Received).Milliseconds())
	assert.True(t, events[0].Write())
	assert.Equal(t, "widgets.x c/b/status", events[1].Object.String())
	assert.False(t, events[1].Write(), "a dry run writes nothing")

	watches, err := parseAudit(strings.NewReader(auditSample), []string{"ResponseStarted"})
	require.NoError(t, err)
	require.Len(t, watches, 1)
	assert.Equal(t, "watch", watches[0].Verb)

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

func TestChangesDoNotDependOnTheOrderOfTheLog(t *testing.T) {
	write := func(name, resourceVersion string) AuditEvent {
		return AuditEvent{Verb: "patch", Code: 200, Object: AuditObject{Resource: "configmaps", Name: name}, ResourceVersion: resourceVersion}
	}
	log := []AuditEvent{
		write("a", "12"), write("a", "11"), // logged in reverse order
		write("a", "12"), // changed nothing
		write("b", "12"), // another object
		write("a", "13"),
	}
	assert.Equal(t, []AuditEvent{log[0], log[1], log[3], log[4]}, Changes(log))
}

func TestChangesBelongToTheFirstWriteReceived(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	write := func(user, subresource, resourceVersion string, received, done int) AuditEvent {
		return AuditEvent{
			Verb: "patch", Code: 200, User: user, ResourceVersion: resourceVersion,
			Object:   AuditObject{Resource: "deployments", Name: "a", Subresource: subresource},
			Received: noon.Add(time.Duration(received) * time.Second), Done: noon.Add(time.Duration(done) * time.Second),
		}
	}
	log := []AuditEvent{
		write("operator", "", "11", 0, 1),
		write("operator", "", "12", 3, 4), // reacts to the next write and changes nothing, but is logged first
		write("controller", "status", "12", 2, 5),
	}
	assert.Equal(t, []AuditEvent{log[0], log[2]}, Changes(log))
}

func TestChangesOmitsVersionsOlderThanTheRequest(t *testing.T) {
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
		write("patch", "a", "13", 5, 6),  // no change: a lost write changed a
		write("patch", "c", "14", 3, 7),  // received before the response with 15
		write("delete", "d", "12", 8, 9), // the response has the deleted object
		write("patch", "a", "16", 10, 11),
	}
	assert.Equal(t, []AuditEvent{log[0], log[1], log[3], log[4], log[5]}, Changes(log))
}
