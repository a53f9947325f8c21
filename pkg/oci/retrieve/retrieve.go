// Package retrieve fetches the files of a release image with a Job, so that the operator needs no registry access. The Job's pod runs the
// current release image and mounts the requested image as a volume, which the kubelet pulls and verifies. The pod sends the manifests to
// the operator. This package creates and watches the Job, receives the stream and reports the cause of a failure. Its caller verifies the
// image's signature before, and passes a function that checks the stream's content.
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

// Options configure the Jobs.
type Options struct {
	// Name is the name of the ClusterVersion and the prefix of the Jobs' names.
	Name string
	// Namespace is the operator's namespace, which also holds the Jobs.
	Namespace string
	// Sender is the current release image, whose program sends the files.
	Sender string
	// Address is the host and port of the operator's endpoint for pods. Fingerprint is the fingerprint of its key.
	Address, Fingerprint string
	// Node is the name of the operator's node, on which the pods run; empty for the nodes of the control plane.
	Node string
	// PullSecrets are Secrets with registry credentials for the kubelet.
	PullSecrets []corev1.LocalObjectReference
	// PriorityClass is the priority class of the pods; may be empty.
	PriorityClass string
	// Deadline bounds the duration of one retrieval; default 15 minutes.
	Deadline time.Duration
}

// keptFor is how long an ended Job is kept for inspection.
const keptFor = 10 * time.Minute

// cleanupTime bounds the cleanup after a canceled retrieval.
const cleanupTime = 10 * time.Second

// Retriever retrieves releases, with one Job at a time.
type Retriever struct {
	clock   clock.PassiveClock
	batch   batchv1client.BatchV1Interface
	core    corev1client.CoreV1Interface
	inbox   *Inbox
	options Options
	// turn serializes retrievals, because each retrieval first removes the Jobs of earlier ones.
	turn chan struct{}
}

// New returns a Retriever whose Jobs send to the inbox. The caller serves the inbox at options.Address. New fails if the address or the
// fingerprint is missing.
func New(
	clk clock.PassiveClock, batch batchv1client.BatchV1Interface, core corev1client.CoreV1Interface, inbox *Inbox, options Options,
) (*Retriever, error) {
	if _, _, err := net.SplitHostPort(options.Address); err != nil || options.Fingerprint == "" {
		return nil, errors.New("retrieval by Job needs an address that pods can reach: set POD_IP and --listen")
	}
	if options.Deadline == 0 {
		options.Deadline = 15 * time.Minute
	}
	return &Retriever{clock: clk, batch: batch, core: core, inbox: inbox, options: options, turn: make(chan struct{}, 1)}, nil
}

// Retrieve creates a Job that sends the files of an image, and passes the stream to read. version becomes part of the Job's name and may
// be empty. Retrieve returns when the stream has been read, or with an *Error if the Job cannot send it. First, it removes the Jobs of
// earlier retrievals, including those of a former operator, because their tokens are invalid.
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
	log.Info("retrieving release with a job", "job", job.Name, "image", img.ByDigest())
	err = r.wait(ctx, job, outcome)
	// A failed Job is kept for inspection until the next retrieval or its TTL removes it.
	if _, failed := errors.AsType[*Error](err); !failed {
		r.discard(context.WithoutCancel(ctx), job)
	}
	if err == nil {
		log.Info("retrieved release with a job", "job", job.Name)
	}
	return err
}

// removeOld removes the Jobs of earlier retrievals.
func (r *Retriever) removeOld(ctx context.Context) error {
	jobs := r.batch.Jobs(r.options.Namespace)
	old, err := jobs.List(ctx, metav1.ListOptions{LabelSelector: r.selector()})
	if err != nil {
		return fmt.Errorf("listing earlier retrieval Jobs: %w", err)
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

// remove deletes a Job, whose pods and Secret go with it.
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

// start creates the Job, then its Secret. The pod starts only when the Secret exists.
func (r *Retriever) start(ctx context.Context, o order, token string) (*batchv1.Job, error) {
	job, err := r.batch.Jobs(r.options.Namespace).Create(ctx, o.job(), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating retrieval Job: %w", refused(err))
	}
	if mounts := job.Spec.Template.Spec.Volumes; len(mounts) == 0 || mounts[0].Image == nil {
		err = &Error{Reason: reasonImageVolumes, Message: "the API server dropped the image volume of the Job", Remedy: imageVolumesRemedy}
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

// wait returns when the stream has been read or the retrieval has failed.
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
	// An unschedulable pod causes only one event, so its waiting time is checked periodically.
	patience := time.NewTicker(schedulingPatience / 3)
	defer patience.Stop()
	seen := false
	for {
		var err error
		select {
		case err = <-outcome:
			return received(job, err)
		case <-ctx.Done():
			return r.deadlineError(ctx, pods)
		case <-patience.C:
		case <-changed:
		}
		select {
		case err = <-outcome: // the stream's result takes precedence over the pod's state
			return received(job, err)
		default:
		}
		seen = seen || len(jobs.store.List()) > 0 // the first list may predate the Job
		if !seen || !pods.HasSynced() {
			continue
		}
		if e := r.judge(jobs, pods); e != nil {
			return fmt.Errorf("retrieval Job %s: %w", job.Name, e)
		}
	}
}

// received wraps the result of a stream.
func received(job *batchv1.Job, err error) error {
	if err != nil {
		return fmt.Errorf("receiving the files from retrieval Job %s: %w", job.Name, err)
	}
	return nil
}

// deadlineError returns the error for an exceeded deadline, including the state of the pods.
func (r *Retriever) deadlineError(ctx context.Context, pods watched) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	message := []string{fmt.Sprintf("the pod sent nothing within %s", r.options.Deadline)}
	for _, pod := range pods.pods() {
		if state := progress(pod); state != "" {
			message = append(message, "pod "+pod.Name+" "+state)
		}
	}
	return &Error{Reason: reasonDeadline, Message: strings.Join(message, "; ")}
}

func (r *Retriever) judge(jobs, pods watched) *Error {
	known := jobs.store.List()
	if len(known) == 0 {
		return &Error{Reason: reasonGone, Message: "another client deleted it"}
	}
	job, ok := known[0].(*batchv1.Job)
	if !ok {
		return nil
	}
	return failure(job, pods.pods(), r.clock.Now())
}

// watched is a watch with the objects that it has seen.
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

// watch signals changed on every event, until ctx ends.
func watch(
	ctx context.Context, client rest.Interface, resource, namespace string, kind runtime.Object, changed chan<- struct{},
	choose func(*metav1.ListOptions),
) watched {
	poke := func() {
		select {
		case changed <- struct{}{}:
		default: // a pending signal also covers this change
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
