package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	"github.com/cluster-version/cvo/test/endpoint"
)

// follower collects what is visible from outside: ClusterVersion, ClusterOperators, Nodes and MachineConfigPools by watches, and the
// progress from the operator itself, because no object has it in such detail.
type follower struct {
	client   client.WithWatch
	operator *serve.Client
	teller   *storyteller
}

// progressEvery is the polling interval for the progress. The eye cannot see faster changes.
const progressEvery = 100 * time.Millisecond

// follow follows the cluster until ctx ends, which is not an error.
func (f *follower) follow(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range []client.ObjectList{&configv1.ClusterVersionList{}, &configv1.ClusterOperatorList{}, &corev1.NodeList{}, &mcfgv1.MachineConfigPoolList{}} {
		group.Go(func() error { f.watch(ctx, list); return nil })
	}
	group.Go(func() error { f.poll(ctx); return nil })
	return group.Wait()
}

// watch watches one kind and restarts a watch that ends.
func (f *follower) watch(ctx context.Context, list client.ObjectList) {
	for ctx.Err() == nil {
		w, err := f.client.Watch(ctx, list)
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		for e := range w.ResultChan() {
			f.seen(e)
		}
		w.Stop()
	}
}

func (f *follower) seen(e watch.Event) {
	switch o := e.Object.(type) {
	case *configv1.ClusterVersion:
		f.teller.update(func(s *story, now time.Time) { s.clusterVersion(o, now) })
	case *configv1.ClusterOperator:
		f.teller.update(func(s *story, _ time.Time) {
			s.operators[o.Name] = o.Status
			if e.Type == watch.Deleted {
				delete(s.operators, o.Name)
			}
		})
	case *corev1.Node:
		f.teller.update(func(s *story, now time.Time) { s.observeNode(o.Name, existing(o, e), now) })
	case *mcfgv1.MachineConfigPool:
		f.teller.update(func(s *story, now time.Time) { s.observePool(o.Name, existing(o, e), now) })
	}
}

// existing returns the object of an event, nil if it is deleted.
func existing[T any](object *T, e watch.Event) *T {
	if e.Type == watch.Deleted {
		return nil
	}
	return object
}

// poll reads the progress regularly until ctx ends. It also updates the story with unchanged progress, because the conditions too decide
// whether an update is stuck.
func (f *follower) poll(ctx context.Context) {
	var account *report.Snapshot
	tag := ""
	for pause(ctx, progressEvery) {
		next, nextTag, err := rolloutpage.Read(ctx, f.operator, false, tag)
		if err != nil {
			continue // no rollout has started, or the operator has ended, which other code notices
		}
		if tag = nextTag; next != nil {
			account = next
		}
		f.teller.update(func(s *story, now time.Time) { s.progress(&account.Progress, now) })
	}
}

// progress updates the story with the operator's progress.
func (s *story) progress(progress *report.Progress, now time.Time) {
	p := s.current()
	if p == nil {
		return
	}
	before := *p
	p.observe(now, progress)
	s.noteProgress(before, p, now)
	if s.stuck.IsZero() && s.isStuck() {
		s.stuck = now
	}
}

// clusterVersion updates the conditions and ends the phase when it is complete in the history.
func (s *story) clusterVersion(cv *configv1.ClusterVersion, now time.Time) {
	before := s.conditions
	s.conditions = cv.Status.Conditions
	s.noteConditions(before, now)
	p, history := s.current(), cv.Status.History
	if p == nil || !p.ended.IsZero() || len(history) == 0 || history[0].Version != p.to || history[0].State != configv1.CompletedUpdate {
		return
	}
	if s.condition(configv1.OperatorProgressing).Status != configv1.ConditionFalse {
		return // the status write is still under way
	}
	unfinished := *p
	p.complete(now)
	p.verified = history[0].Verified
	s.noteProgress(unfinished, p, now)
	s.noteCompleted(p, now)
	s.observeNodes(now)
}

// readRequests counts the operator's requests to the API server.
func readRequests(ctx context.Context, from *serve.Client) (requests, error) {
	text, err := endpoint.Metrics(ctx, from)
	if err != nil {
		return requests{}, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return requests{}, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	var r requests
	for _, m := range families["rest_client_requests_total"].GetMetric() {
		n := int(m.GetCounter().GetValue())
		if label(m, "method") == http.MethodGet {
			r.reads += n
		} else {
			r.writes += n
		}
	}
	return r, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func (r requests) minus(o requests) requests {
	return requests{writes: r.writes - o.writes, reads: r.reads - o.reads}
}

// failingMessage returns the message of condition Failing, empty if the condition is not True.
func (s *story) failingMessage() string {
	if c := s.condition(api.Failing); c.Status == configv1.ConditionTrue {
		return c.Message
	}
	return ""
}

func (r *requests) add(o requests) {
	r.writes += o.writes
	r.reads += o.reads
}
