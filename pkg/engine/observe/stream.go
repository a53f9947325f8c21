package observe

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/internal/backoff"
)

// retryDelay is the time between two attempts, without jitter.
var retryDelay = backoff.Doubling{First: 200 * time.Millisecond, Max: 30 * time.Second}

const (
	// minLifetime is the minimum lifetime of a stream. After a shorter one, the next attempt is delayed as after a failure.
	minLifetime = 5 * time.Second
	// staleAfter is the maximum interruption of a stream before its states become unknown. It is also the maximum wait for a response,
	// and for the initial state.
	staleAfter = 2 * time.Minute
	// watchTimeout is the minimum time for which we ask the server to keep a watch open. The maximum is twice as long. Each end of a watch
	// costs one request.
	watchTimeout = 15 * time.Minute
	// overdue is the time after that maximum when we end a watch ourselves.
	overdue = time.Minute
	// reflectorLevel is added to the level of the Reflector's log lines, because the Reflector logs every end of a watch as a warning.
	reflectorLevel = 3
)

// trouble is the reason why a stream is down.
type trouble int

const (
	// healthy means that the stream is up or has not been tried yet.
	healthy trouble = iota
	// unreachable means that the server does not respond, responds with an internal error, or no longer has the earlier versions.
	unreachable
	// unserved means that the resource is not served.
	unserved
	// down means that the API server of the resource is down.
	down
	// refused means that the server rejects the request, for example because a permission is missing.
	refused
)

// awaitsServer reports whether the stream waits for the CRD or the APIService of its resource.
func (t trouble) awaitsServer() bool { return t == unserved || t == down }

// stream keeps one watch alive. It leaves the protocol to a Reflector: initial state, bookmarks, resuming, expiry. It controls the pace
// itself, because a Reflector lists immediately when a watch fails, reopens a closed watch immediately, and cannot be woken while it waits.
type stream struct {
	resource  schema.GroupVersionResource
	client    metadata.ResourceInterface
	selectors metav1.ListOptions
	sink      cache.TransformingStore
	// drops reports whether the sink ignores an object, and records that the object was dropped.
	drops unwanted
	log   logr.Logger
	// forget is called when the delivered states become unknown.
	forget func()
	// onTroubleChange is called with the old and the new trouble after each change.
	onTroubleChange func(before, after trouble)
	// wakeup ends the wait for the next attempt.
	wakeup chan struct{}

	// Only the goroutine of run uses the following fields.

	// failures counts failed attempts in a row, and earlyEnds streams in a row that ended early. They are separate so that earlier failures
	// do not delay a stream that worked again in between.
	failures, earlyEnds int
	// delay is the remaining wait before the next attempt.
	delay time.Duration
	// notBefore is the time that the server requested with Retry-After.
	notBefore time.Time
	// opened is the time when the stream was opened; zero if it is closed. tried is the time of the last attempt. interrupted is the time
	// when the stream stopped delivering events; zero while it delivers them.
	opened, tried, interrupted time.Time
	// openTimer ends an attempt without a response, or whose initial state does not arrive, because the server is silent or requests a long
	// wait with Retry-After; nil while the stream waits for neither.
	openTimer *time.Timer
	// failure is the error of the last attempt.
	failure error
	// logged is true if the trouble was logged for the administrator. answered is true once the server has responded in any way since it
	// was unreachable.
	logged, answered bool

	mu      sync.Mutex
	trouble trouble
}

func (w *Watcher) newStream(s Scope, states *states) *stream {
	result := &stream{
		resource: s.Resource, client: w.client.Resource(s.Resource), sink: states,
		drops:  states.drops,
		log:    w.log.WithValues("resource", s.Resource.GroupResource().String()),
		forget: states.forget, onTroubleChange: w.troubleChanged,
		wakeup: make(chan struct{}, 1),
	}
	if s.Namespace != "" {
		result.client = w.client.Resource(s.Resource).Namespace(s.Namespace)
	}
	switch {
	case s.Name != "":
		result.selectors.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
		result.log = result.log.WithValues("name", s.Name)
	case s.Selector == "":
		result.selectors.LabelSelector = w.owned.String()
	case s.Selector != Everything:
		result.selectors.LabelSelector = s.Selector
	}
	return result
}

// jittered returns the delay after a number of failures in a row.
func jittered(failures int) time.Duration {
	return backoff.Jitter(retryDelay.After(failures), 0.2, rand.Float64())
}

// run keeps the watch alive until ctx ends.
func (s *stream) run(ctx context.Context) {
	// The Reflector's log lines do not help an administrator. We log the important events ourselves.
	ctx = logr.NewContext(ctx, s.log.V(reflectorLevel))
	reflector := s.reflector()
	for s.pace(ctx) == nil {
		s.failure = nil
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && s.failure == nil && ctx.Err() == nil {
			s.failed(err)
		}
		if apierrors.IsNotFound(s.failure) {
			reflector = s.reflector() // a resource that is served again may be a different one
		}
	}
}

func (s *stream) reflector() *cache.Reflector {
	log := s.log.V(reflectorLevel)
	return cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  s.list,
		WatchFuncWithContext: s.open,
	}, &metav1.PartialObjectMetadata{}, s.sink, cache.ReflectorOptions{
		Name:            "observe",
		Logger:          &log,
		TypeDescription: s.resource.String(),
		MinWatchTimeout: watchTimeout,
		// pace controls the pace.
		Backoff: &wait.Backoff{Duration: time.Millisecond},
	})
}

// list is called by the Reflector when the watch cannot deliver the initial state. A list helps only if the server does not support such
// watches. After any other failure it would fail as well.
func (s *stream) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if s.failure != nil {
		return nil, final{s.failure}
	}
	s.selectOnly(&o)
	return List(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return s.client.List(ctx, o) }, o, s.drops)
}

// open opens a watch.
func (s *stream) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.selectOnly(&o)
	resumes := o.SendInitialEvents == nil && o.ResourceVersion != "" && o.ResourceVersion != "0"
	for {
		if err := s.pace(ctx); err != nil {
			return nil, err
		}
		w, err := s.connect(ctx, o)
		if err == nil {
			return w, nil
		}
		if ctx.Err() != nil {
			return nil, final{err}
		}
		if o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
			return nil, final{err} // an old server, so the Reflector lists
		}
		s.failed(err)
		switch {
		case (apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || tooLarge(err)) && o.ResourceVersion != "":
			return nil, err // the Reflector requests the latest state
		case !resumes || classify(err) != unreachable || s.stale():
			return nil, final{err}
		}
	}
}

// final hides the kind of an error from the Reflector. Otherwise the Reflector would retry by itself, and even resume a stream whose states
// were dropped.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// tooLarge reports whether the server is older than our resource version, after the restore of a backup or because it lags behind.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func (s *stream) selectOnly(o *metav1.ListOptions) {
	o.LabelSelector, o.FieldSelector = s.selectors.LabelSelector, s.selectors.FieldSelector
}

func (s *stream) connect(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	// The server normally ends the watch. This limit covers a server that hangs and keeps the connection open.
	limit := 2*watchTimeout + overdue
	if o.TimeoutSeconds != nil {
		limit = time.Duration(*o.TimeoutSeconds)*time.Second + overdue
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	s.openTimer = time.AfterFunc(staleAfter, cancel)
	s.tried = time.Now()
	w, err := s.client.Watch(WithSieve(ctx, s.drops), o)
	if err != nil {
		s.stopOpenTimer()
		cancel()
		return nil, err
	}
	s.opened, s.failure, s.notBefore = time.Now(), nil, time.Time{}
	s.failures, s.answered = 0, false
	if o.SendInitialEvents == nil {
		s.complete()
	}
	if s.logged {
		s.logged = false
		s.log.Info("watching objects again")
	}
	s.setTrouble(healthy)
	return limited{w, cancel}, nil
}

// limited is a watch with a time limit.
type limited struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop ends the watch.
func (l limited) Stop() {
	l.cancel()
	l.Interface.Stop()
}

// complete records that the stream delivers events again: it has resumed, or the initial state is complete.
func (s *stream) complete() {
	s.stopOpenTimer()
	s.interrupted = time.Time{}
}

func (s *stream) stopOpenTimer() {
	if s.openTimer != nil {
		s.openTimer.Stop()
		s.openTimer = nil
	}
}

// interrupt records that the stream no longer delivers events.
func (s *stream) interrupt() {
	if s.interrupted.IsZero() {
		s.interrupted = time.Now()
	}
	if s.stale() {
		s.forget()
	}
}

func (s *stream) stale() bool {
	return !s.interrupted.IsZero() && time.Since(s.interrupted) >= staleAfter
}

// closed records that the stream has ended for any reason.
func (s *stream) closed() {
	if time.Since(s.opened) < minLifetime {
		s.earlyEnds++
		s.delay = max(s.delay, jittered(s.earlyEnds))
	} else {
		s.earlyEnds = 0
	}
	s.opened = time.Time{}
	s.stopOpenTimer()
	s.interrupt()
}

// failed records a failed attempt.
func (s *stream) failed(err error) {
	kind := classify(err)
	if kind != unreachable && s.currentTrouble() == unreachable && !s.answered {
		s.answered = true
		s.failures = 0 // a starting server rejects many requests, but only for a short time
	}
	s.failures++
	s.failure, s.delay = err, jittered(s.failures)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		s.notBefore = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	s.interrupt()
	if apierrors.IsNotFound(err) {
		s.forget()
	}
	// Other components report a server outage. Only this stream knows that the server rejects this resource.
	if kind != unreachable && !s.logged {
		s.logged = true
		s.log.Info("cannot watch objects for now", "reason", err.Error())
	} else {
		s.log.V(1).Info("cannot watch objects", "reason", err.Error(), "retry", s.delay.String())
	}
	s.setTrouble(kind)
}

func classify(err error) trouble {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unreachable
	}
	switch code := status.Status().Code; {
	case code == 404:
		return unserved
	case code == 503:
		return down
	case code >= 400 && code < 500 && code != 408 && code != 410 && code != 429:
		return refused
	}
	return unreachable
}

func (s *stream) setTrouble(to trouble) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = to
	s.mu.Unlock()
	if before != to {
		s.onTroubleChange(before, to)
	}
}

// currentTrouble returns the current trouble.
func (s *stream) currentTrouble() trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// wake ends the wait for the next attempt.
func (s *stream) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// pace waits until the next attempt is due or the stream is woken. Its only error is the end of ctx.
func (s *stream) pace(ctx context.Context) error {
	if !s.opened.IsZero() {
		s.closed()
	}
	if s.delay == 0 && s.notBefore.IsZero() {
		return ctx.Err()
	}
	timer := time.NewTimer(max(s.delay, time.Until(s.notBefore)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.wakeup:
		s.failures = 0
		timer.Reset(max(time.Until(s.tried.Add(retryDelay.First)), time.Until(s.notBefore)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	s.delay, s.notBefore = 0, time.Time{}
	return ctx.Err()
}
