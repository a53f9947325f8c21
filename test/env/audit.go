package env

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AuditLevel is the amount of detail in the audit log. A request is logged when it is complete, so a watch is logged when it ends. Watches
// of Leases are also logged when they start, see Watches.
type AuditLevel string

const (
	// AuditMetadata logs the user, verb, object and time of a request, and the status code of the response. It is the default.
	AuditMetadata AuditLevel = "Metadata"
	// AuditWrites also logs the responses to writes, so that AuditEvent.ResourceVersion is known.
	AuditWrites AuditLevel = "Writes"
	// AuditNone keeps no audit log.
	AuditNone AuditLevel = "None"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
  verbs: [watch]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
%s- level: Metadata
  omitStages: [ResponseStarted]
`

const auditWrites = `- level: Metadata
  omitStages: [ResponseStarted]
  resources:
  - {group: "", resources: [secrets, "serviceaccounts/token"]}
  - {group: authentication.k8s.io}
- level: RequestResponse
  omitStages: [ResponseStarted]
  verbs: [create, update, patch, delete, deletecollection]
`

// AuditPolicy returns the API servers' audit policy for a level.
func AuditPolicy(level AuditLevel) []byte {
	rules := ""
	if level == AuditWrites {
		rules = auditWrites
	}
	return fmt.Appendf(nil, auditPolicy, rules)
}

func (e *Env) configureAudit(level AuditLevel, args *envtest.Arguments) error {
	switch level {
	case AuditNone:
		return nil
	case AuditWrites, AuditMetadata, "":
	default:
		return fmt.Errorf("unknown audit level %q: use %s, %s or %s", level, AuditMetadata, AuditWrites, AuditNone)
	}
	policy := filepath.Join(e.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, AuditPolicy(level), 0o600); err != nil {
		return err
	}
	e.AuditLog = filepath.Join(e.Dir, "audit.log")
	args.Set("audit-policy-file", policy)
	args.Set("audit-log-path", e.AuditLog)
	args.Set("audit-log-maxsize", "4096") // the default rotates the file at 100 MB while we read it
	return nil
}

// AuditObject is the object of a request.
type AuditObject struct {
	Group, Version, Resource, Subresource, Namespace, Name string
}

// String returns a text such as `deployments.apps openshift-x/y/status`, without empty parts.
func (o AuditObject) String() string {
	s := o.Resource
	if o.Group != "" {
		s += "." + o.Group
	}
	s += " "
	if o.Namespace != "" {
		s += o.Namespace + "/"
	}
	s += o.Name
	if o.Subresource != "" {
		s += "/" + o.Subresource
	}
	return s
}

// AuditEvent is a complete request to the API server.
type AuditEvent struct {
	// Received is the time of the request. Done is the time when the response was complete.
	Received, Done time.Time
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. An apply is a patch whose URI has a field manager.
	Verb string
	// URI is the path with its query.
	URI string
	// User and UserAgent identify the client.
	User, UserAgent string
	// Pod is the name of the pod to which the token belongs; empty for other clients.
	Pod string
	// Object is empty for a request without a resource.
	Object AuditObject
	// Code is the HTTP status of the response.
	Code int
	// ResourceVersion is the resource version in the response. It is known only for writes with AuditWrites, and not for Secrets.
	ResourceVersion string
}

// Write reports whether the request may have changed something: a write without dryRun that was not rejected. Reviews of tokens and of
// access change nothing, although the API server logs them as creations.
func (a AuditEvent) Write() bool {
	if a.Object.Group == "authentication.k8s.io" || a.Object.Group == "authorization.k8s.io" {
		return false
	}
	switch a.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return a.Code < 300 && !strings.Contains(a.URI, "dryRun=")
	}
	return false
}

// auditLine is the part of the audit.k8s.io/v1 Event that we read.
type auditLine struct {
	Stage      string
	Verb       string
	RequestURI string
	UserAgent  string
	User       struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef struct {
		APIGroup, APIVersion, Resource, Subresource, Namespace, Name string
	}
	ResponseStatus struct{ Code int }
	ResponseObject struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
}

// Audit returns the requests of the test that has the control plane, in the order in which they were completed. It may be called while the API
// server writes the log, because it skips an incomplete last line.
func (e *Env) Audit() ([]AuditEvent, error) { return e.requests("ResponseComplete", "Panic") }

// Watches returns the watches of Leases in the order in which the API server started to answer them, including watches that have not ended.
// A client that watches a Lease knows the leader without further requests. Done is the time when the response started.
func (e *Env) Watches() ([]AuditEvent, error) { return e.requests("ResponseStarted") }

func (e *Env) requests(stages ...string) ([]AuditEvent, error) {
	f, err := os.Open(e.AuditLog)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the audit log: %w: start the control plane with an audit level", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	events, err := parseAudit(f, stages)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log %s: %w", e.AuditLog, err)
	}
	// The API server logs a watch of the test before when it ends, which may be now.
	return slices.DeleteFunc(events, func(event AuditEvent) bool { return event.Received.Before(e.lent) }), nil
}

// ParseAudit reads an audit log, or a part of it that consists of complete lines.
func ParseAudit(in io.Reader) ([]AuditEvent, error) {
	return parseAudit(in, []string{"ResponseComplete", "Panic"})
}

func parseAudit(in io.Reader, stages []string) ([]AuditEvent, error) {
	var events []AuditEvent
	r := bufio.NewReaderSize(in, 1<<16)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l auditLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if slices.Contains(stages, l.Stage) {
			events = append(events, l.event())
		}
	}
}

func (l auditLine) event() AuditEvent {
	ref := l.ObjectRef
	e := AuditEvent{
		Received: l.RequestReceivedTimestamp, Done: l.StageTimestamp,
		Verb: l.Verb, URI: l.RequestURI, User: l.User.Username, UserAgent: l.UserAgent, Code: l.ResponseStatus.Code,
		Object: AuditObject{
			Group: ref.APIGroup, Version: ref.APIVersion, Resource: ref.Resource, Subresource: ref.Subresource,
			Namespace: ref.Namespace, Name: ref.Name,
		},
		ResourceVersion: l.ResponseObject.Metadata.ResourceVersion,
	}
	if pod := l.User.Extra["authentication.kubernetes.io/pod-name"]; len(pod) == 1 {
		e.Pod = pod[0]
	}
	if e.Object.Name == "" { // a create names its object only in the body
		e.Object.Name = l.ResponseObject.Metadata.Name
	}
	return e
}

// Changes returns the writes that changed an object: those whose response has a resource version that no earlier response to a write had.
// It needs a log of AuditWrites; without resource versions every write counts.
//
// The log is in the order in which requests ended, which may differ from the order in which they took effect. A version that differs from
// the previous one is therefore not enough. If several responses have the same version, the request that was received first made the
// change: a client that reacts to a watch event may have its response logged before the write to which it reacts.
//
// A killed API server loses the last lines of its log. Resource versions only grow, so a version that is older than one in a response
// before the request is not a change either.
func Changes(events []AuditEvent) []AuditEvent {
	type state struct{ group, resource, namespace, name, resourceVersion string }
	stateOf := func(e AuditEvent) state {
		o := e.Object
		return state{o.Group, o.Resource, o.Namespace, o.Name, e.ResourceVersion}
	}
	received := map[state]time.Time{}
	for _, e := range events {
		if at, ok := received[stateOf(e)]; e.Write() && (!ok || e.Received.Before(at)) {
			received[stateOf(e)] = e.Received
		}
	}
	seen, reached := map[state]bool{}, reachedBy(events)
	var changes []AuditEvent
	for _, e := range events {
		if !e.Write() {
			continue
		}
		s := stateOf(e)
		if e.ResourceVersion != "" && (seen[s] || e.Received.After(received[s]) || !strings.HasPrefix(e.Verb, "delete") && e.revision() < reached(e.Received)) {
			continue
		}
		seen[s] = true
		changes = append(changes, e)
	}
	return changes
}

// reachedBy returns a function that returns the highest resource version in the responses to writes before a time.
func reachedBy(events []AuditEvent) func(time.Time) uint64 {
	writes := slices.DeleteFunc(slices.Clone(events), func(e AuditEvent) bool { return !e.Write() || e.revision() == 0 })
	slices.SortFunc(writes, func(a, b AuditEvent) int { return a.Done.Compare(b.Done) })
	latest := make([]uint64, len(writes)+1)
	for i, e := range writes {
		latest[i+1] = max(latest[i], e.revision())
	}
	return func(moment time.Time) uint64 {
		n, _ := slices.BinarySearchFunc(writes, moment, func(e AuditEvent, t time.Time) int { return e.Done.Compare(t) })
		return latest[n]
	}
}

// revision returns the resource version as a number, 0 for none.
func (a AuditEvent) revision() uint64 {
	n, err := strconv.ParseUint(a.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
