package create

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	imagev1 "github.com/openshift/api/image/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/compose"
	"github.com/cluster-version/cvo/pkg/author/render"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// readOverrides reads COMPONENT=PULLSPEC from the arguments and the mapping file.
func (o *options) readOverrides() error {
	o.overrides = map[string]string{}
	if o.mappingFile != "" {
		text, err := inputfile.Read(o.mappingFile)
		if err != nil {
			return fmt.Errorf("reading --mapping-file: %w", err)
		}
		if o.overrides, err = input.ParseMapping(text); err != nil {
			return fmt.Errorf("--mapping-file %s: %w", o.mappingFile, err)
		}
	}
	for _, arg := range o.args {
		component, pullspec, err := input.ParseOverride(arg)
		if err != nil {
			return fmt.Errorf("argument %w", err)
		}
		if _, twice := o.overrides[component]; twice {
			return fmt.Errorf("component %q is given twice: omit one of the two", component)
		}
		o.overrides[component] = pullspec
	}
	return nil
}

// parsePrograms parses --arch.
func (o *options) parsePrograms() error {
	o.programs = map[string]string{}
	for _, arg := range o.arch {
		architecture, file, err := compose.ParseProgram(arg)
		if err != nil {
			return fmt.Errorf("--arch %w", err)
		}
		if _, twice := o.programs[architecture]; twice {
			return fmt.Errorf("--arch gives %s twice: omit one of the two", architecture)
		}
		o.programs[architecture] = file
	}
	return nil
}

// inputs collects the inputs of the release.
func (o *options) inputs(ctx context.Context, streams command.Streams, images *image.Reader) (*compose.Inputs, error) {
	stream, err := o.readStream(ctx, streams)
	if err != nil {
		return nil, err
	}
	if err := registries.CheckImages(o.fromRelease, o.base); err != nil {
		return nil, err
	}
	rendered, err := o.render(ctx)
	if err != nil {
		return nil, err
	}
	inputs, err := compose.Gather(ctx, compose.Options{
		Images: images, Original: o.fromRelease, Again: o.reproduces(), Stream: stream, ReferenceMode: input.ReferenceMode(o.referenceMode),
		Folders: o.fromDirs, Rendered: rendered, Profile: o.profile, NoAnnotate: o.noAnnotate, Overrides: o.overrides, Exclude: o.exclude, Include: o.include, AllowMissing: o.allowMissing,
		Offline: o.offline, PerRegistry: o.registry.MaxPerRegistry,
		Created: o.createdAt, Now: o.clock.Now(), Adjust: o.adjust,
		Base: o.base, BaseComponent: o.baseTag, RequireBaseComponent: o.changed("to-image-base-tag"), AllPlatforms: o.keepManifestList,
		NoOperator: o.noOperator, Executable: o.executable, Architecture: runtime.GOARCH, Programs: o.programs,
		OperatorFolder: o.operatorManifests, Operator: manifests.FS(),
		Monitoring: manifests.Monitoring(), AddMonitoring: o.monitoring,
		Warn: func(warning string) { streams.Warnf("%s", warning) },
		Reading: func(count int) (loading, loaded func(imagev1.TagReference), done func()) {
			return o.reading(ctx, streams, count)
		},
	})
	var contradiction *compose.ContradictionError
	var incomplete *compose.IncompleteError
	switch {
	case errors.As(err, &contradiction):
		return nil, &command.UsageError{Err: err}
	case errors.As(err, &incomplete):
		return nil, &command.RefusedError{Err: err}
	}
	return inputs, err
}

// render renders the charts and the kustomizations.
func (o *options) render(ctx context.Context) ([]input.Component, error) {
	var rendered []input.Component
	for _, kind := range []struct {
		flag   string
		texts  []string
		render func(render.Source) (input.Component, error)
	}{
		{"--from-helm", o.charts, func(s render.Source) (input.Component, error) { return render.Chart(ctx, s, o.values) }},
		{"--from-kustomize", o.kustomizations, func(s render.Source) (input.Component, error) { return render.Kustomization(ctx, s) }},
	} {
		for _, text := range kind.texts {
			source, err := render.ParseSource(text)
			if err != nil {
				return nil, &command.UsageError{Err: fmt.Errorf("%s %w", kind.flag, err)}
			}
			component, err := kind.render(source)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind.flag, err)
			}
			rendered = append(rendered, component)
		}
	}
	return rendered, nil
}

// adjust applies the flags that override parts of the release.
func (o *options) adjust(opts *assemble.Options) {
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
}

// reproduces reports whether the command reproduces --from-release without changes.
func (o *options) reproduces() bool {
	if o.fromRelease == "" || len(o.overrides) > 0 {
		return false
	}
	return !slices.ContainsFunc([]string{
		"name", "previous", "next", "metadata", "created", "exclude", "include", "component-versions",
		"component-versions-display-names", "allow-missing-images", "to-image-base", "no-operator", "arch", "operator-manifests", "mirror", "monitoring",
		"profile", "no-annotate",
	}, o.changed)
}

// readStream reads an image stream from a file, standard input, a URL or a cluster. It returns nil if no flag names one.
func (o *options) readStream(ctx context.Context, streams command.Streams) (*imagev1.ImageStream, error) {
	switch {
	case o.stream != "":
		return o.clusterStream(ctx)
	case o.streamFile != "":
		file := input.StreamFile{Name: o.streamFile, Input: streams.In, Insecure: o.registry.Insecure, Authority: o.registry.Authority}
		return file.Read(ctx)
	}
	return nil, nil // nil means that no flag names an image stream
}

// clusterStream reads an image stream from a cluster that serves image streams.
func (o *options) clusterStream(ctx context.Context) (*imagev1.ImageStream, error) {
	cfg, namespace, err := o.cluster.Namespaced()
	if err != nil {
		return nil, err
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	object, err := client.Resource(imagev1.GroupVersion.WithResource("imagestreams")).Namespace(namespace).Get(ctx, o.stream, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the cluster has no image stream %s/%s, or does not serve image streams: save one to a file and use --from-image-stream-file: %w", namespace, o.stream, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading image stream %s/%s: %w", namespace, o.stream, err)
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return input.ParseImageStream(data)
}

// reading shows the progress of reading component images.
func (o *options) reading(ctx context.Context, streams command.Streams, count int) (loading, loaded func(imagev1.TagReference), done func()) {
	p := o.progress.Start(ctx, streams, "reading component images")
	streams = p.Streams()
	p.Expect(count)
	loading = func(tag imagev1.TagReference) {
		p.Report(progress.Event{Item: tag.Name})
		if _, ok := o.overrides[tag.Name]; ok {
			streams.Infof("Loading override %s %s", tag.From.Name, tag.Name)
			return
		}
		what := tag.From.Name
		if digest := release.Pullspec(what).Digest(); digest != "" {
			what = string(digest)
		}
		streams.Infof("Loading %s %s", what, tag.Name)
	}
	loaded = func(tag imagev1.TagReference) {
		p.Report(progress.Event{Item: tag.Name, Ended: true, Silent: true})
	}
	return loading, loaded, p.Close
}

// creationTime returns the time from the flag, or else from the environment variable (seconds since 1970), or else the zero time.
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
