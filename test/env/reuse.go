package env

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/discovery"
)

// idle are the control planes of this process that no test uses, by their audit level. A start takes some seconds of processor time, so tests
// use them one after the other. They end with the process.
var idle = struct {
	sync.Mutex
	envs map[AuditLevel][]*Env
}{envs: map[AuditLevel][]*Env{}}

// reusable reports whether a control plane with these options can serve several tests.
func (o Options) reusable() bool {
	return o.Dir == "" && len(o.APIServerArgs) == 0 && o.StartTimeout == 0
}

// borrow returns an idle control plane, or starts one.
func borrow(o Options) (*Env, error) {
	o.Audit = cmp.Or(o.Audit, AuditMetadata)
	if e := takeIdle(o.Audit); e != nil {
		e.lent = time.Now()
		return e, nil
	}
	e, err := Start(o)
	if err != nil {
		return nil, err
	}
	e.audit = o.Audit
	if e.initial, err = e.state(); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func takeIdle(level AuditLevel) *Env {
	idle.Lock()
	defer idle.Unlock()
	envs := idle.envs[level]
	if len(envs) == 0 {
		return nil
	}
	last := len(envs) - 1
	idle.envs[level] = envs[:last]
	return envs[last]
}

// giveBack resets a control plane for the next test. One that its test has stopped or broken stays stopped.
func giveBack(e *Env) error {
	if e.stopped.Load() {
		return nil
	}
	if err := e.reset(); err != nil {
		return errors.Join(fmt.Errorf("resetting the control plane: %w", err), e.Stop())
	}
	idle.Lock()
	defer idle.Unlock()
	idle.envs[e.audit] = append(idle.envs[e.audit], e)
	return nil
}

// clusterState is what a cluster contains.
type clusterState struct {
	// values has the value of each key of etcd.
	values map[string][]byte
	// groups are the names of the served API groups.
	groups []string
}

// volatile reports whether the API server itself keeps changing a key.
func volatile(key string) bool {
	return key == "compact_rev_key" || strings.HasPrefix(key, "/registry/masterleases/") || strings.HasPrefix(key, "/registry/leases/kube-system/apiserver-")
}

func (e *Env) state() (*clusterState, error) {
	var found struct {
		KVs []struct {
			Key   []byte `json:"key"`
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	all := []byte{0} // as the first key and as the end of the range: every key
	if err := e.etcd("range", map[string]any{"key": all, "range_end": all}, &found); err != nil {
		return nil, err
	}
	s := &clusterState{values: map[string][]byte{}}
	for _, kv := range found.KVs {
		if !volatile(string(kv.Key)) {
			s.values[string(kv.Key)] = kv.Value
		}
	}
	groups, err := e.groups()
	s.groups = groups
	return s, err
}

// reset gives the cluster and its kubeconfig the state after the start. It writes to etcd, because a deletion through the API server waits for
// finalizers and namespaces, whose controllers do not run. The API server watches etcd, so its caches follow.
func (e *Env) reset() error {
	if err := e.writeKubeconfig(); err != nil {
		return err
	}
	if e.AuditLog != "" {
		if err := os.Truncate(e.AuditLog, 0); err != nil { // the API server appends
			return err
		}
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		now, err := e.state()
		if err != nil {
			return err
		}
		changed, err := e.restore(now.values)
		switch {
		case err != nil:
			return err
		case !changed && slices.Equal(now.groups, e.initial.groups):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("it still changes: its API groups are %v, and were %v", now.groups, e.initial.groups)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// restore makes the keys equal to those after the start, and reports whether it had to. Custom resources come before their definitions, which
// come earlier in the alphabet.
func (e *Env) restore(now map[string][]byte) (changed bool, err error) {
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(now))) {
		if _, ok := e.initial.values[key]; !ok {
			changed = true
			if err := e.etcd("deleterange", map[string]any{"key": []byte(key)}, nil); err != nil {
				return changed, err
			}
		}
	}
	for key, want := range e.initial.values {
		if got, ok := now[key]; !ok || !bytes.Equal(got, want) {
			changed = true
			if err := e.etcd("put", map[string]any{"key": []byte(key), "value": want}, nil); err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// etcd sends a request to etcd's gateway for JSON (etcd.io, "API v3: gRPC gateway").
func (e *Env) etcd(method string, request map[string]any, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Post(e.testEnv.ControlPlane.Etcd.URL.JoinPath("v3", "kv", method).String(), "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("etcd responded with %s: %s", answer.Status, data)
	case response == nil:
		return nil
	}
	return json.Unmarshal(data, response)
}

// groups returns the sorted names of the API groups that the API server serves.
func (e *Env) groups() ([]string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(e.config)
	if err != nil {
		return nil, err
	}
	list, err := client.ServerGroups()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, group := range list.Groups {
		for _, version := range group.Versions {
			names = append(names, version.GroupVersion)
		}
	}
	slices.Sort(names)
	return names, nil
}
