package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
)

const (
	// maxStreamBytes bounds an image stream; that of a release has 90 kB, with history a few hundred.
	maxStreamBytes = 16 << 20
	// streamTimeout bounds how long an image stream may take to come from a URL.
	streamTimeout = time.Minute
)

// releaseInputs are what a release is made of.
type releaseInputs struct {
	options assemble.Options
	// existing is --from-release.
	existing *assemble.Existing
	// again is set if nothing is to be changed in it.
	again bool
	// own names the components whose manifests come from a folder.
	own []string
	// asWritten names the images that a folder lists: by digest, with what is to be known of them.
	asWritten []string
	// base names the component whose image the release is built on, which brings its manifests that way.
	base string
}

// checkOverrides reads COMPONENT=PULLSPEC from the arguments and the mapping file.
func (o *releaseNewOptions) checkOverrides() error {
	o.overrides = map[string]string{}
	if o.mappingFile != "" {
		text, err := os.ReadFile(o.mappingFile)
		if err != nil {
			return fmt.Errorf("reading --mapping-file: %w", err)
		}
		if o.overrides, err = assemble.ParseMapping(text); err != nil {
			return fmt.Errorf("--mapping-file %s: %w", o.mappingFile, err)
		}
	}
	for _, arg := range o.args {
		component, pullspec, err := assemble.ParseOverride(arg)
		if err != nil {
			return fmt.Errorf("argument %w", err)
		}
		if _, twice := o.overrides[component]; twice {
			return fmt.Errorf("component %q is given twice: leave out one of the two", component)
		}
		o.overrides[component] = pullspec
	}
	for _, name := range o.exclude {
		if _, given := o.overrides[name]; given || slices.Contains(o.include, name) {
			return fmt.Errorf("component %q is excluded and wanted: leave out one of the two", name)
		}
	}
	return nil
}

// inputs gathers what the release is made of: the list of images, what replaces some of them, the manifests that
// folders and images bring, and what it is built on.
func (o *releaseNewOptions) inputs(ctx context.Context, streams Streams) (*releaseInputs, error) {
	images, err := o.registry.images("")
	if err != nil {
		return nil, err
	}
	in := &releaseInputs{}
	if err := o.list(ctx, streams, images, in); err != nil {
		return nil, err
	}
	if err := o.folders(in); err != nil {
		return nil, err
	}
	if err := o.addMonitoring(in); err != nil {
		return nil, err
	}
	for _, component := range slices.Sorted(maps.Keys(o.overrides)) {
		in.options.Override(component, o.overrides[component])
	}
	if err := o.foundation(ctx, images, in); err != nil {
		return nil, err
	}
	if !o.offline {
		if err := o.readImages(ctx, streams, images, in); err != nil {
			return nil, err
		}
	}
	return in, o.checkComplete(ctx, images, in)
}

// list takes the images, and what else is known, from another release or an image stream, and settles what the release
// says about itself.
func (o *releaseNewOptions) list(ctx context.Context, streams Streams, images *image.Reader, in *releaseInputs) error {
	opts := &in.options
	switch {
	case o.fromRelease != "":
		var err error
		if in.existing, err = assemble.ReadExisting(ctx, images, o.fromRelease); err != nil {
			return err
		}
		if *opts, err = in.existing.Options(); err != nil {
			return fmt.Errorf("reading release %s: %w", o.fromRelease, err)
		}
		in.again = o.again()
		if !in.again {
			opts.Created = time.Time{}
			in.existing.Derive(opts)
		}
	case o.stream != "" || o.streamFile != "":
		stream, err := o.readStream(ctx, streams)
		if err != nil {
			return err
		}
		tags, warnings, err := assemble.StreamImages(stream, assemble.ReferenceMode(o.referenceMode), o.exclude)
		if err != nil {
			return err
		}
		for _, w := range warnings {
			fmt.Fprintf(streams.Err, "warning: %s\n", w)
		}
		opts.Images = tags
		opts.FromImageStream(stream)
	}
	opts.Images = slices.DeleteFunc(opts.Images, func(tag imagev1.TagReference) bool { return slices.Contains(o.exclude, tag.Name) })
	opts.AllowMissingImages = o.allowMissing
	opts.Include = append(opts.Include, o.include...)
	if !o.createdAt.IsZero() && !in.again {
		opts.Created = o.createdAt
	}
	for flag, set := range map[string]func(){
		"name":                             func() { opts.Version = o.name },
		"previous":                         func() { opts.Previous = o.previous },
		"next":                             func() { opts.Next = o.next },
		"metadata":                         func() { opts.Metadata = o.metadataContent },
		"component-versions":               func() { opts.ComponentVersions = o.versionsByKey },
		"component-versions-display-names": func() { opts.ComponentDisplayNames = o.displayByKey },
	} {
		if o.changed(flag) {
			set()
		}
	}
	if opts.Version == "" {
		at := o.createdAt
		if at.IsZero() {
			at = o.clock.Now()
		}
		opts.Version = "0.0.1-" + at.UTC().Format("2006-01-02-150405")
	}
	return nil
}

// again reports whether --from-release is to be made again as it is.
func (o *releaseNewOptions) again() bool {
	if len(o.overrides) > 0 {
		return false
	}
	return !slices.ContainsFunc([]string{
		"name", "previous", "next", "metadata", "created", "exclude", "include", "component-versions",
		"component-versions-display-names", "allow-missing-images", "to-image-base", "operator-manifests", "mirror", "monitoring",
	}, o.changed)
}

// readStream reads an image stream from a file, standard input, a URL or a cluster.
func (o *releaseNewOptions) readStream(ctx context.Context, streams Streams) (*imagev1.ImageStream, error) {
	if o.stream != "" {
		return o.clusterStream(ctx)
	}
	data, err := o.streamBytes(ctx, streams)
	if err != nil {
		return nil, fmt.Errorf("reading --from-image-stream-file: %w", err)
	}
	stream, err := assemble.ParseImageStream(data)
	if err != nil {
		return nil, fmt.Errorf("--from-image-stream-file %s: %w", o.streamFile, err)
	}
	return stream, nil
}

func (o *releaseNewOptions) streamBytes(ctx context.Context, streams Streams) ([]byte, error) {
	if o.streamFile == "-" {
		return readBounded(streams.In)
	}
	if u, err := url.Parse(o.streamFile); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return o.download(ctx, u)
	}
	f, err := os.Open(o.streamFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

func (o *releaseNewOptions) download(ctx context.Context, u *url.URL) ([]byte, error) {
	host := u.Hostname()
	if u.Scheme == "http" && !o.registry.insecure && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return nil, fmt.Errorf("%s would be fetched without TLS, and anybody on the way could put images into the release: use https, or --insecure", u.Redacted())
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented to be one
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.registry.insecure}
	if o.registry.authority != "" {
		bundle, err := os.ReadFile(o.registry.authority)
		if err != nil {
			return nil, fmt.Errorf("reading --certificate-authority: %w", err)
		}
		if transport.TLSClientConfig.RootCAs, err = registry.Authorities(bundle); err != nil {
			return nil, fmt.Errorf("--certificate-authority %s: %w", o.registry.authority, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	if !o.registry.insecure {
		client = registry.StayInTLS(client)
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", u.Redacted(), response.Status)
	}
	return readBounded(response.Body)
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxStreamBytes+1))
	if err == nil && len(data) > maxStreamBytes {
		err = fmt.Errorf("it has more than %d bytes", maxStreamBytes)
	}
	return data, err
}

// clusterStream reads an image stream of a cluster that has the API for them.
func (o *releaseNewOptions) clusterStream(ctx context.Context) (*imagev1.ImageStream, error) {
	cfg, namespace, err := o.cluster.namespaced()
	if err != nil {
		return nil, err
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	object, err := client.Resource(imagev1.GroupVersion.WithResource("imagestreams")).Namespace(namespace).Get(ctx, o.stream, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the cluster has no image stream %s/%s, or no image streams at all: save one as a file and give it by --from-image-stream-file: %w", namespace, o.stream, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading image stream %s/%s: %w", namespace, o.stream, err)
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return assemble.ParseImageStream(data)
}

// folders adds what lies in --from-dir: components, and images that no other list gives another address.
func (o *releaseNewOptions) folders(in *releaseInputs) error {
	for _, dir := range o.fromDirs {
		folder, err := assemble.ReadFolder(os.DirFS(dir))
		if err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
		for _, c := range folder.Components {
			if slices.Contains(in.own, c.Name) {
				return &UsageError{Err: fmt.Errorf("--from-dir %s: component %q comes from another folder already: leave out one of the two", dir, c.Name)}
			}
			in.own = append(in.own, c.Name)
			in.options.Components = append(in.options.Components, c)
		}
		if err := o.joinImages(in, folder.Images); err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
	}
	return nil
}

// monitoringComponent is what the manifests of --monitoring count as. They are not the operator's own: those come with a
// base image.
const monitoringComponent = assemble.OperatorComponent + "-monitoring"

// addMonitoring adds the manifests of --monitoring; those that another release brought along are replaced.
func (o *releaseNewOptions) addMonitoring(in *releaseInputs) error {
	if !o.monitoring {
		return nil
	}
	files, err := assemble.ReadFiles(manifests.Monitoring())
	if err != nil {
		return err
	}
	for i := range in.options.Components {
		c := &in.options.Components[i]
		c.Files = slices.DeleteFunc(slices.Clone(c.Files), func(f assemble.File) bool {
			return slices.ContainsFunc(files, func(ours assemble.File) bool { return ours.Name == f.Name })
		})
	}
	in.options.Components = append(in.options.Components, assemble.Component{Name: monitoringComponent, Files: files})
	return nil
}

// isMonitoring reports whether a file of a release comes from --monitoring. Its kinds are the Prometheus Operator's, which
// a release need not bring: whoever asks for it knows that the cluster has them.
func isMonitoring(f assemble.File) bool {
	data, err := fs.ReadFile(manifests.Monitoring(), path.Base(f.Name))
	return err == nil && bytes.Equal(data, f.Data)
}

// joinImages adds a folder's images to the list; where both name an image, they have to agree.
func (o *releaseNewOptions) joinImages(in *releaseInputs, added []imagev1.TagReference) error {
	have := &in.options.Images
	for _, tag := range added {
		at := slices.IndexFunc(*have, func(t imagev1.TagReference) bool { return t.Name == tag.Name })
		_, replaced := o.overrides[tag.Name]
		switch {
		case replaced || slices.Contains(o.exclude, tag.Name):
		case at < 0:
			*have = append(*have, tag)
			in.asWritten = append(in.asWritten, tag.Name)
		case (*have)[at].From == nil || tag.From == nil || (*have)[at].From.Name != tag.From.Name:
			return &UsageError{Err: fmt.Errorf("image %q has two addresses: say which with %s=PULLSPEC", tag.Name, tag.Name)}
		}
	}
	return nil
}

// readImages reads the component images: what they say about themselves, and their manifests.
func (o *releaseNewOptions) readImages(ctx context.Context, streams Streams, images *image.Reader, in *releaseInputs) error {
	var asWritten, toRead []imagev1.TagReference
	for _, tag := range in.options.Images {
		if slices.Contains(in.asWritten, tag.Name) {
			asWritten = append(asWritten, tag)
		} else {
			toRead = append(toRead, tag)
		}
	}
	p := o.progress.start(streams, "reading component images")
	defer p.close()
	streams = p.streams()
	p.expect(len(toRead), 0)
	read, err := assemble.ReadImages(ctx, toRead, assemble.ReadOptions{
		Images: images, PerRegistry: o.registry.most, LabelsOnly: append([]string{in.base}, in.own...),
		Loaded: func(tag imagev1.TagReference) {
			p.report(progressEvent{item: tag.Name, ended: true, unsaid: true})
		},
		Loading: func(tag imagev1.TagReference) {
			p.report(progressEvent{item: tag.Name})
			if _, ok := o.overrides[tag.Name]; ok {
				fmt.Fprintf(streams.Err, "info: Loading override %s %s\n", tag.From.Name, tag.Name)
				return
			}
			what := tag.From.Name
			if _, digest, ok := strings.Cut(what, "@"); ok {
				what = digest
			}
			fmt.Fprintf(streams.Err, "info: Loading %s %s\n", what, tag.Name)
		},
	})
	if err != nil {
		return fmt.Errorf("reading component images (--offline takes their digests as they are): %w", err)
	}
	in.options.Images = slices.Concat(asWritten, read.Images)
	in.options.Components = append(in.options.Components, read.Components...)
	return nil
}

// checkComplete refuses to make a release out of another one that would lack manifests, because neither an image nor a
// folder brings what the other one has. What a replaced or excluded image brought is not missing.
func (o *releaseNewOptions) checkComplete(ctx context.Context, images *image.Reader, in *releaseInputs) error {
	if in.existing == nil || in.again || len(o.fromDirs) > 0 {
		return nil
	}
	var gone []imagev1.TagReference
	for _, tag := range in.existing.Images {
		if _, replaced := o.overrides[tag.Name]; (replaced || slices.Contains(o.exclude, tag.Name)) && tag.Name != in.base && !o.offline {
			gone = append(gone, tag)
		}
	}
	before, err := assemble.ReadImages(ctx, gone, assemble.ReadOptions{Images: images, PerRegistry: o.registry.most})
	if err != nil {
		return fmt.Errorf("reading what the replaced images brought: %w", err)
	}
	for _, c := range in.options.Components {
		if _, replaced := o.overrides[c.Name]; !replaced {
			before.Components = append(before.Components, c)
		}
	}
	missing, err := in.existing.Unbrought(before.Components)
	if err != nil {
		return fmt.Errorf("making %s again: %w", o.fromRelease, err)
	}
	if len(missing) > 0 {
		return &RefusedError{Err: fmt.Errorf("%d manifests of %s come from none of its images, such as %s: name the folders that it was made of by --from-dir",
			len(missing), o.fromRelease, missing[0])}
	}
	return nil
}

// foundation settles what the release is built on: an image that was named, the one of a component, what another release
// was built on, or nothing but the operator's own set.
func (o *releaseNewOptions) foundation(ctx context.Context, images *image.Reader, in *releaseInputs) error {
	if o.operatorManifests != "" || o.base != "" {
		if o.base != "" {
			return o.buildOn(ctx, images, in, o.base)
		}
		return o.buildOnNothing(in)
	}
	in.base = o.baseTag
	_, replaced := o.overrides[o.baseTag]
	if e := in.existing; e != nil && !replaced && !o.changed("to-image-base-tag") {
		return o.buildOnSame(ctx, images, in)
	}
	at := slices.IndexFunc(in.options.Images, func(tag imagev1.TagReference) bool { return tag.Name == o.baseTag })
	switch {
	case at >= 0 && !o.offline && !slices.Contains(in.own, o.baseTag):
		in.options.Include = append(in.options.Include, o.baseTag)
		return o.buildOn(ctx, images, in, in.options.Images[at].From.Name)
	case o.changed("to-image-base-tag"):
		return &UsageError{Err: fmt.Errorf("--to-image-base-tag: there is no image %q to build on, or --offline forbids to read it: give it as %s=PULLSPEC, or name a base by --to-image-base", o.baseTag, o.baseTag)}
	}
	in.base = ""
	return o.buildOnNothing(in)
}

// buildOn opens the image to build on or, of an index and if it is to stay one, all of its images.
func (o *releaseNewOptions) buildOn(ctx context.Context, images *image.Reader, in *releaseInputs, pullspec string) error {
	base, err := images.Resolve(ctx, pullspec)
	if err != nil {
		return fmt.Errorf("reading the base image: %w", err)
	}
	if o.keepManifestList {
		in.options.Platforms, err = assemble.Platforms(ctx, images, base)
		if err != nil || len(in.options.Platforms) > 0 {
			return err
		}
	}
	if in.options.Base, err = images.Open(ctx, base); err != nil {
		return fmt.Errorf("reading the base image: %w", err)
	}
	return nil
}

// buildOnSame builds on what another release was built on: one of its component images if it has that, which puts the
// release's layers to the proof, and otherwise the release itself without what makes it one.
func (o *releaseNewOptions) buildOnSame(ctx context.Context, images *image.Reader, in *releaseInputs) (err error) {
	e := in.existing
	if runs, err := e.Runs(); err != nil || !runs && !in.again && in.options.Version != e.Version {
		if err != nil {
			return err
		}
		// The operator's set in it bears its version.
		in.base = ""
		return o.buildOnNothing(in)
	}
	if o.keepManifestList {
		in.options.Platforms, err = e.Platforms(ctx, images)
		if err != nil || len(in.options.Platforms) > 0 {
			return err
		}
	}
	if tag, ok := e.BaseImage(); ok && !o.offline {
		if _, replaced := o.overrides[tag.Name]; !replaced {
			in.base = tag.Name
			return o.buildOn(ctx, images, in, tag.From.Name)
		}
	}
	in.options.BaseDigest = e.BaseDigest
	if in.options.Base, err = e.Base(); err != nil {
		return &UsageError{Err: fmt.Errorf("%w (--to-image-base)", err)}
	}
	return nil
}

// buildOnNothing takes the operator's own set, which stands in for a base image.
func (o *releaseNewOptions) buildOnNothing(in *releaseInputs) (err error) {
	set := manifests.FS()
	switch {
	case o.keepManifestList:
		return &UsageError{Err: errors.New("--keep-manifest-list: there is no base image: name one by --to-image-base, or give it as " + o.baseTag + "=PULLSPEC")}
	case o.operatorManifests != "":
		set = os.DirFS(o.operatorManifests)
	case !manifests.Complete():
		return errors.New("this cvo was built without the CustomResourceDefinitions of ClusterVersion and ClusterOperator: " +
			"build it again after `make generate`, or give the operator's manifests by --operator-manifests or --to-image-base")
	}
	in.options.Operator, err = assemble.ReadFiles(set)
	if o.operatorManifests == "" {
		// A release built on nothing has no operator to run: its Deployment would never become available.
		in.options.Operator = slices.DeleteFunc(in.options.Operator, func(f assemble.File) bool {
			return bytes.Contains(f.Data, []byte(".ReleaseImage"))
		})
	}
	return err
}

// creationTime takes the flag, or else the environment variable (seconds since 1970), or else none.
func creationTime(flag, epoch string) (time.Time, error) {
	if flag != "" {
		t, err := time.Parse(time.RFC3339, flag)
		if err != nil {
			return t, fmt.Errorf("--created: %w", err)
		}
		return t, nil
	}
	if epoch == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("$%s: %w", sourceDateEpoch, err)
	}
	return time.Unix(seconds, 0), nil
}

func sourceDate() string { return os.Getenv(sourceDateEpoch) }

// namespaced finds the cluster, and the namespace that its kubeconfig chooses.
func (f *contextFlags) namespaced() (*rest.Config, string, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, "", err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).Namespace()
	return cfg, namespace, err
}
