package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/rollout"
)

// Reasons of a 503 of RolloutPath.
const (
	// ReasonNotLeader: another replica leads, or none; the message names it.
	ReasonNotLeader metav1.StatusReason = "NotLeader"
	// ReasonNoRollout: the release is being retrieved, verified and loaded, or could not be; the conditions of the
	// ClusterVersion tell.
	ReasonNoRollout metav1.StatusReason = "NoRollout"
)

// snapshotFunc tells of the rollout under way; false if there is none.
type snapshotFunc func() (rollout.Snapshot, bool)

// account serves RolloutPath: a rollout.Snapshot as JSON, without the objects for ?objects=false. The answer has an
// ETag that changes when anything but the time does, so a client that asks every second with If-None-Match is mostly
// answered 304. That is why there is no stream: a request is authorized each time, and nothing is kept for a client.
type account struct {
	snapshot snapshotFunc
	// elected is closed once this replica leads.
	elected <-chan struct{}
	leader  func(context.Context) (string, error)
}

// ServeHTTP implements http.Handler.
func (a *account) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	select {
	case <-a.elected:
	default:
		refuse(w, http.StatusServiceUnavailable, ReasonNotLeader, a.whoLeads(req.Context()))
		return
	}
	objects := true
	if text := req.URL.Query().Get("objects"); text != "" {
		var err error
		if objects, err = strconv.ParseBool(text); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("objects=%q is neither true nor false", text))
			return
		}
	}
	s, ok := a.snapshot()
	if !ok {
		refuse(w, http.StatusServiceUnavailable, ReasonNoRollout,
			"no rollout has begun yet: the conditions of the ClusterVersion tell what becomes of its release")
		return
	}
	if !objects {
		s.Objects = nil
	}
	tag, err := etag(s)
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	w.Header().Set("ETag", tag)
	if matches(req.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // a client that went away
}

func (a *account) whoLeads(ctx context.Context) string {
	const ask = "only the leader knows of the rollout, and this replica does not lead"
	switch host, err := a.leader(ctx); {
	case err != nil:
		return fmt.Sprintf("%s; who does could not be read: %v", ask, err)
	case host == "":
		return ask + "; nobody does at the moment"
	default:
		return fmt.Sprintf("%s; %s does", ask, host)
	}
}

// etag is the same for snapshots that differ in nothing but the time they were taken at.
func etag(s rollout.Snapshot) (string, error) {
	s.At = time.Time{}
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(s); err != nil {
		return "", fmt.Errorf("writing the account of the rollout: %w", err)
	}
	return `W/"` + hex.EncodeToString(hash.Sum(nil)[:16]) + `"`, nil
}

// matches compares as RFC 9110, section 13.1.2, says.
func matches(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// refuse answers with an object like those of the API server, so that a client can tell the reason from the sentence.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, //nolint:gosec // an HTTP status
	})
}
