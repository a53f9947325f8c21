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

// AuditLevel says how much of each request the audit log keeps. Only complete requests are logged (stage
// ResponseComplete), a watch therefore when it ends.
type AuditLevel string

const (
	// AuditMetadata keeps who did what to which object when, and the answer's code. The default.
	AuditMetadata AuditLevel = "Metadata"
	// AuditWrites keeps, for writes, also the answer, so that AuditEvent.ResourceVersion is known.
	AuditWrites AuditLevel = "Writes"
	// AuditNone keeps no audit log.
	AuditNone AuditLevel = "None"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
%s- level: Metadata
`

const auditWrites = `- level: Metadata
  resources:
  - {group: "", resources: [secrets, "serviceaccounts/token"]}
  - {group: authentication.k8s.io}
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
`

// AuditPolicy is the policy that API servers are given for a level.
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
	args.Set("audit-log-maxsize", "4096") // the default rotates the file at 100 MB, under its reader
	return nil
}

// AuditObject is what a request was about.
type AuditObject struct {
	Group, Version, Resource, Subresource, Namespace, Name string
}

// String reads like `deployments.apps openshift-x/y/status`, without the parts that are empty.
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

// AuditEvent is one complete request to the API server.
type AuditEvent struct {
	// Received and Done are when the request came and when its answer was complete.
	Received, Done time.Time
	// Verb is get, list, watch, create, update, patch, delete or deletecollection; an apply is a patch whose URI has a
	// field manager.
	Verb string
	// URI is the path with its query.
	URI string
	// User and UserAgent say who asked.
	User, UserAgent string
	// Pod is the name of the pod whose token it was; empty for others.
	Pod string
	// Object is empty for a request that is about no resource.
	Object AuditObject
	// Code is the HTTP status of the answer.
	Code int
	// ResourceVersion is that of the object in the answer: only for writes, only with AuditWrites, not for Secrets.
	ResourceVersion string
}

// Write reports whether the request could have changed something: a write without dryRun that was not refused. To have a
// token or an access reviewed changes nothing, though it is a creation to the API server.
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

// auditLine is the part of audit.k8s.io/v1 Event that we read.
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

// Audit reads an audit log in the order in which requests were completed. It may be read while the API server writes
// it: an incomplete last line is left out.
func Audit(file string) ([]AuditEvent, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the audit log: %w: was the control plane started with an audit level?", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	events, err := ParseAudit(f)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log %s: %w", file, err)
	}
	return events, nil
}

// ParseAudit reads a log, or a part of it that begins and ends with a line.
func ParseAudit(in io.Reader) ([]AuditEvent, error) {
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
		if l.Stage == "ResponseComplete" || l.Stage == "Panic" {
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

// Changes returns the writes that changed an object: those that answered with a resource version that no write before
// them had answered with, by whomever. The order of the log is that in which requests ended, which is not quite that in
// which they took effect, so being another version than the one before is not enough. An API server that is killed takes
// the last lines of its log with it; resource versions only grow, so one that is older than what was answered before the
// request came is no change either. It needs a log of AuditWrites; without resource versions every write counts.
func Changes(events []AuditEvent) []AuditEvent {
	type state struct{ group, resource, namespace, name, resourceVersion string }
	seen, reached := map[state]bool{}, reachedBy(events)
	var changes []AuditEvent
	for _, e := range events {
		if !e.Write() {
			continue
		}
		o := e.Object
		s := state{o.Group, o.Resource, o.Namespace, o.Name, e.ResourceVersion}
		if e.ResourceVersion != "" && (seen[s] || !strings.HasPrefix(e.Verb, "delete") && e.revision() < reached(e.Received)) {
			continue
		}
		seen[s] = true
		changes = append(changes, e)
	}
	return changes
}

// reachedBy returns what tells the latest resource version that any write had answered with before a moment.
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

// revision is the resource version as a number, 0 for none.
func (a AuditEvent) revision() uint64 {
	n, err := strconv.ParseUint(a.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
