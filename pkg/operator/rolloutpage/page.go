// Package rolloutpage serves the last result of every manifest of the current rollout, and has the client of that page. Only the leader has
// the data. Package serve provides the HTTP server and client, and package guard admits the callers.
package rolloutpage

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

	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/guard"
	"github.com/cluster-version/cvo/pkg/kube/serve"
)

// Path is the path at which the leader serves the last result of every manifest.
const Path = "/debug/rollout"

// Reasons for status 503 of the page.
const (
	// ReasonNotLeader means that another replica leads, or none. The message names the leader.
	ReasonNotLeader metav1.StatusReason = "NotLeader"
	// ReasonNoRollout means that the release is being retrieved, verified and loaded, or that this failed. The conditions of the
	// ClusterVersion show its state.
	ReasonNoRollout metav1.StatusReason = "NoRollout"
)

// Page serves Path with a report.Snapshot as JSON, without the objects for ?objects=false. The response has an ETag that changes with
// everything except the time. A client that polls every second with If-None-Match therefore mostly gets status 304. Polling needs no
// stream: each request is authorized, and the server keeps no state for clients.
type Page struct {
	// Snapshot returns a snapshot of the current rollout, false if there is none.
	Snapshot func() (report.Snapshot, bool)
	// Elected is closed when this replica leads.
	Elected <-chan struct{}
	// Leader returns the host of the leader, empty if no replica leads.
	Leader func(context.Context) (string, error)
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	select {
	case <-p.Elected:
	default:
		guard.Refuse(w, http.StatusServiceUnavailable, ReasonNotLeader, p.notLeader(req.Context()))
		return
	}
	objects := true
	if text := req.URL.Query().Get("objects"); text != "" {
		var err error
		if objects, err = strconv.ParseBool(text); err != nil {
			guard.Refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("objects=%q must be true or false", text))
			return
		}
	}
	s, ok := p.Snapshot()
	if !ok {
		guard.Refuse(w, http.StatusServiceUnavailable, ReasonNoRollout,
			"no rollout has started yet; see the conditions of the ClusterVersion for the state of its release")
		return
	}
	if !objects {
		s.Objects = nil
	}
	tag, err := etag(s)
	if err != nil {
		guard.Refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	w.Header().Set("ETag", tag)
	if matches(req.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // the client has disconnected
}

func (p *Page) notLeader(ctx context.Context) string {
	const ask = "only the leader knows the rollout, and this replica does not lead"
	switch host, err := p.Leader(ctx); {
	case err != nil:
		return fmt.Sprintf("%s; cannot read which replica leads: %v", ask, err)
	case host == "":
		return ask + "; no replica leads at the moment"
	default:
		return fmt.Sprintf("%s; the leader is %s", ask, host)
	}
}

// etag returns the same tag for snapshots that differ only in their time.
func etag(s report.Snapshot) (string, error) {
	s.At = time.Time{}
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(s); err != nil {
		return "", fmt.Errorf("encoding the state of the rollout: %w", err)
	}
	return `W/"` + hex.EncodeToString(hash.Sum(nil)[:16]) + `"`, nil
}

// matches compares tags by RFC 9110, section 13.1.2.
func matches(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// Read returns the leader's snapshot of the rollout, with or without the objects. known is the tag of an earlier response, or empty. If
// nothing has changed since, the snapshot is nil. If the server rejects the request, the error is an apierrors.APIStatus with a reason such
// as ReasonNotLeader or ReasonNoRollout.
func Read(ctx context.Context, client *serve.Client, objects bool, known string) (snapshot *report.Snapshot, tag string, err error) {
	path := Path
	if !objects {
		path += "?objects=false"
	}
	resp, err := client.Get(ctx, path, known)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		return nil, known, nil
	}
	snapshot = &report.Snapshot{}
	if err := json.NewDecoder(resp.Body).Decode(snapshot); err != nil {
		return nil, "", fmt.Errorf("reading the state of the rollout: %w", err)
	}
	return snapshot, resp.Header.Get("ETag"), nil
}
