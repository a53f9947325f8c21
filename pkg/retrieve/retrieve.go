// Package retrieve has a Job of the cluster fetch the files of a release image: its pod runs the release that runs
// already, mounts the image as a volume, so that the kubelet pulls and verifies it, and sends its manifests to the operator.
// The operator asks no registry. Package retrieve makes the Job, watches it, says why it fails, and takes in the stream;
// what the stream may hold is checked by whoever reads it, and whether somebody signed the image was checked before.
package retrieve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/release"
)

// Options say what Jobs look like.
type Options struct {
	// Name is that of the ClusterVersion, with which names of Jobs begin.
	Name string
	// Namespace of the Jobs: the operator's.
	Namespace string
	// Sender is the release image that runs, whose program sends.
	Sender string
	// Address is where the pod reaches the operator's endpoint, host and port; Fingerprint is that of its key.
	Address, Fingerprint string
	// PullSecrets are Secrets with credentials for registries, for the kubelet.
	PullSecrets []corev1.LocalObjectReference
	// PriorityClass of the pods; empty for none.
	PriorityClass string
	// Deadline is how long one retrieval may take; default 15 minutes.
	Deadline time.Duration
}

// keptFor is how long a Job that has ended stays to be looked at.
const keptFor = 10 * time.Minute

// cleanupTime bounds what is cleaned up after a retrieval that was cancelled.
const cleanupTime = 10 * time.Second

// Retriever makes one Job at a time.
type Retriever struct {
	clock   clock.PassiveClock
	batch   batchv1client.BatchV1Interface
	core    corev1client.CoreV1Interface
	inbox   *Inbox
	options Options
	// turn is free while no retrieval is under way: each begins by removing the Jobs of others.
	turn chan struct{}
}

// New returns a Retriever whose Jobs send to the inbox, which is served at the address in the options.
func New(
	clk clock.PassiveClock, batch batchv1client.BatchV1Interface, core corev1client.CoreV1Interface, inbox *Inbox, options Options,
) (*Retriever, error) {
	if _, _, err := net.SplitHostPort(options.Address); err != nil || options.Fingerprint == "" {
		return nil, errors.New("retrieval by Job needs an address that pods reach: set POD_IP and --listen")
	}
	if options.Deadline == 0 {
		options.Deadline = 15 * time.Minute
	}
	return &Retriever{clock: clk, batch: batch, core: core, inbox: inbox, options: options, turn: make(chan struct{}, 1)}, nil
}

// Retrieve has a Job send the files of an image, of the version if it is known, and gives the stream to read. It returns
// when the stream has been read, or with an *Error when the Job cannot send it. Jobs of earlier retrievals are removed
// first, those of an operator that is gone too: their tokens open nothing any more.
func (r *Retriever) Retrieve(ctx context.Context, img release.Image, version string, read func(context.Context, io.Reader) error) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Deadline)
	defer cancel()
	if err := r.removeOld(ctx); err != nil {
		return err
	}
	o := order{name: newName(r.options.Name, version), image: img, options: r.options}
	o.server = (&url.URL{Scheme: "https", Host: r.options.Address, Path: Path + o.name}).String()
	token, outcome, end := r.inbox.expect(ctx, o.name, read)
	defer end()
	log := logr.FromContextOrDiscard(ctx)
	job, err := r.start(ctx, o, token)
	if err != nil {
		return err
	}
	log.Info("retrieving a release by a job", "job", job.Name, "image", img.ByDigest())
	err = r.wait(ctx, job, outcome)
	// A Job that failed may be looked at: the next retrieval removes it, or its deadline and its time to live.
	if _, failed := errors.AsType[*Error](err); !failed {
		r.discard(context.WithoutCancel(ctx), job)
	}
	if err == nil {
		log.Info("release retrieved by a job", "job", job.Name)
	}
	return err
}

// removeOld removes the Jobs that earlier retrievals have left.
func (r *Retriever) removeOld(ctx context.Context) error {
	jobs := r.batch.Jobs(r.options.Namespace)
	old, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: r.selector()})
	if err != nil {
		return fmt.Errorf("looking for earlier retrieval Jobs: %w", err)
	}
	for _, job := range old.Items {
		if err := r.remove(ctx, &job); err != nil {
			return err
		}
	}
	return nil
}

func (r *Retriever) selector() string {
	return k8slabels.SelectorFromSet(labels(r.options.Name)).String()
}

// remove deletes a Job. Its pods and its Secret, whose token opens nothing any more, go with it.
func (r *Retriever) remove(ctx context.Context, job *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := r.batch.Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &job.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing retrieval Job %s: %w", job.Name, err)
	}
	return nil
}

// start makes the Job, and then the Secret that belongs to it; the pod waits for that.
func (r *Retriever) start(ctx context.Context, o order, token string) (*batchv1.Job, error) {
	job, err := r.batch.Jobs(r.options.Namespace).Create(ctx, o.job(), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating retrieval Job: %w", refused(err))
	}
	if mounts := job.Spec.Template.Spec.Volumes; len(mounts) == 0 || mounts[0].Image == nil {
		err = &Error{Reason: ReasonImageVolumes, Message: "the API server dropped the image volume of the Job", Remedy: imageVolumesRemedy}
	} else if _, err = r.core.Secrets(job.Namespace).Create(ctx, secret(job, token), metav1.CreateOptions{}); err != nil {
		err = fmt.Errorf("creating the Secret of retrieval Job %s: %w", job.Name, err)
	}
	if err != nil {
		r.discard(context.WithoutCancel(ctx), job)
		return nil, err
	}
	return job, nil
}

func (r *Retriever) discard(ctx context.Context, job *batchv1.Job) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	if err := r.remove(ctx, job); err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("cleaning up after a retrieval", "job", job.Name, "error", err.Error())
	}
}

// wait returns when the stream has been read, or when it will not come.
func (r *Retriever) wait(ctx context.Context, job *batchv1.Job, outcome <-chan error) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan struct{}, 1)
	jobs := watch(watching, r.batch.RESTClient(), "jobs", job.Namespace, &batchv1.Job{}, changed, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, job.Name).String()
	})
	pods := watch(watching, r.core.RESTClient(), "pods", job.Namespace, &corev1.Pod{}, changed, func(o *metav1.ListOptions) {
		o.LabelSelector = k8slabels.SelectorFromSet(k8slabels.Set{batchv1.JobNameLabel: job.Name}).String()
	})
	// A pod that finds no node says so once.
	patience := time.NewTicker(schedulingPatience / 3)
	defer patience.Stop()
	seen := false
	for {
		var err error
		select {
		case err = <-outcome:
			return received(job, err)
		case <-ctx.Done():
			return r.late(ctx, pods)
		case <-patience.C:
		case <-changed:
		}
		select {
		case err = <-outcome: // what the pod was told comes before what became of the pod
			return received(job, err)
		default:
		}
		seen = seen || len(jobs.store.List()) > 0 // the first list may be from before the Job
		if !seen || !pods.HasSynced() {
			continue
		}
		if e := r.judge(jobs, pods); e != nil {
			return fmt.Errorf("retrieval Job %s: %w", job.Name, e)
		}
	}
}

// received is what became of a stream.
func received(job *batchv1.Job, err error) error {
	if err != nil {
		return fmt.Errorf("what retrieval Job %s sent is refused: %w", job.Name, err)
	}
	return nil
}

// late says what was waited for when the time was over.
func (r *Retriever) late(ctx context.Context, pods watched) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	message := []string{fmt.Sprintf("nothing was sent within %s", r.options.Deadline)}
	for _, pod := range pods.pods() {
		if told := progress(pod); told != "" {
			message = append(message, "pod "+pod.Name+" "+told)
		}
	}
	return &Error{Reason: ReasonDeadline, Message: strings.Join(message, "; ")}
}

func (r *Retriever) judge(jobs, pods watched) *Error {
	known := jobs.store.List()
	if len(known) == 0 {
		return &Error{Reason: ReasonGone, Message: "somebody deleted it"}
	}
	job, ok := known[0].(*batchv1.Job)
	if !ok {
		return nil
	}
	return failure(job, pods.pods(), r.clock.Now())
}

// watched is a watch with what it has told.
type watched struct {
	cache.Controller

	store cache.Store
}

func (w watched) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range w.store.List() {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// watch pokes changed whenever something has changed, until ctx ends.
func watch(
	ctx context.Context, client rest.Interface, resource, namespace string, kind runtime.Object, changed chan<- struct{},
	choose func(*metav1.ListOptions),
) watched {
	poke := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting, and will see this change too
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client, resource, namespace, choose),
		ObjectType:    kind,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { poke() }, UpdateFunc: func(any, any) { poke() }, DeleteFunc: func(any) { poke() },
		},
	})
	go controller.RunWithContext(ctx)
	return watched{controller, store}
}
