package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// bench is the state that all runs share.
type bench struct {
	options  options
	dir      string
	logs     string
	progress io.Writer

	cvo, operators string
	registry       *fixture.Registry
	trust          string
	from, to       releaseInput
	scenarios      []scenario
	// bootstrap are files with the objects that a platform's installer creates before the operator starts.
	bootstrap []string
}

// scenario is a way to fill control planes. The main scenario has all figures; the others show how figures grow.
type scenario struct {
	// name is empty for the main scenario.
	name string
	// releases are installed sequentially.
	releases []releaseInput
	// foreign is the number of foreign objects that exist before the install.
	foreign int
}

// prefix returns the prefix of a message about the scenario.
func (s scenario) prefix() string {
	if s.name == "" {
		return ""
	}
	return s.name + ": "
}

// Default sizes of --scale.
const (
	defaultObjects = 10_000
	defaultForeign = 50_000
)

// releaseInput is a measured release. It is signed in the registry, and loaded for the plain loader.
type releaseInput struct {
	image   release.Image
	payload *payload.Payload
}

func (r releaseInput) summary() Release {
	return Release{Version: r.payload.Release.Version, Manifests: len(r.payload.Manifests)}
}

// prepare builds the binaries, and pushes and signs the releases.
func (b *bench) prepare(ctx context.Context) error {
	b.say("building")
	if err := b.build(ctx); err != nil {
		return err
	}
	from, to, err := b.folders(ctx)
	if err != nil {
		return err
	}
	if b.registry, err = fixture.NewRegistry(); err != nil {
		return err
	}
	signer, err := fixture.NewSigner("bench", fixture.SignerOptions{})
	if err != nil {
		return err
	}
	store := filepath.Join(b.dir, "signatures")
	trust, err := signer.Trust("file://" + store)
	if err != nil {
		return err
	}
	b.trust = filepath.Join(b.dir, "trust.yaml")
	if err := os.WriteFile(b.trust, trust, 0o600); err != nil {
		return err
	}
	push := func(folder string) (r releaseInput, err error) {
		if r, err = b.push(ctx, folder); err != nil {
			return r, err
		}
		_, err = signer.WriteSignature(store, r.image)
		return r, err
	}
	if b.from, err = push(from); err != nil {
		return err
	}
	if b.to, err = push(to); err != nil {
		return err
	}
	b.scenarios = []scenario{{releases: []releaseInput{b.from, b.to}}}
	if n := b.options.objects; n > 0 {
		folder, err := b.synthetic(ctx, n)
		if err != nil {
			return err
		}
		release, err := push(folder)
		if err != nil {
			return err
		}
		b.scenarios = append(b.scenarios, scenario{name: fmt.Sprintf("%d objects", n), releases: []releaseInput{release}})
	}
	if n := b.options.foreign; n > 0 {
		b.scenarios = append(b.scenarios, scenario{name: fmt.Sprintf("%d foreign", n), releases: []releaseInput{b.from}, foreign: n})
	}
	return nil
}

// synthetic assembles a release with n objects in addition to the operator's own.
func (b *bench) synthetic(ctx context.Context, n int) (folder string, err error) {
	b.say("assembling a release of %d objects", n)
	source := filepath.Join(b.dir, "synthetic")
	if err := fixture.Synthesize(source, n); err != nil {
		return "", err
	}
	folder = filepath.Join(b.dir, fmt.Sprintf("release-synthetic-%d", n))
	return folder, b.assemble(ctx, source, fixture.SyntheticVersion, folder)
}

// assemble creates the files of a release from those of its components.
func (b *bench) assemble(ctx context.Context, source, version, folder string, more ...string) error {
	args := append([]string{"release", "new", "--offline", "--no-operator", "--from-dir", source, "--name", version, "--to-dir", folder}, more...)
	if out, err := exec.CommandContext(ctx, b.cvo, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("assembling %s of %s: %w: %s", version, source, err, out)
	}
	return nil
}

// build builds the binaries with the flags of `make build`, because the flags affect the resources of a process.
func (b *bench) build(ctx context.Context) error {
	b.cvo, b.operators = b.options.binary, filepath.Join(b.dir, "operators")
	packages := []string{"./test/operators"}
	if b.cvo == "" {
		b.cvo = filepath.Join(b.dir, "cvo")
		packages = append(packages, "./cmd/cvo")
	}
	overlay := filepath.Join(b.dir, "overlay.json")
	for _, arguments := range [][]string{
		{"run", "./hack/overlay", overlay},
		append([]string{"build", "-trimpath", "-overlay", overlay, "-ldflags=-s -w", "-o", b.dir}, packages...),
	} {
		cmd := exec.CommandContext(ctx, "go", arguments...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = b.progress
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building (run bench in the module's root): %w", err)
		}
	}
	return nil
}

// folders returns the two releases, laid out like the root of a release image.
func (b *bench) folders(ctx context.Context) (from, to string, err error) {
	if data := os.Getenv(fixture.TestdataEnv); data != "" {
		payloads := filepath.Join(data, "payloads")
		b.bootstrap = []string{
			filepath.Join(payloads, "bootstrap", "namespaces.yaml"), filepath.Join(payloads, "bootstrap", "imagestream.crd.yaml"),
		}
		return filepath.Join(payloads, "4.22.9"), filepath.Join(payloads, "4.23.0"), nil
	}
	b.say("%s is not set: measuring the small platform in examples/", fixture.TestdataEnv)
	var made [2]string
	for i, version := range []string{"1.0.0", "1.1.0"} {
		made[i] = filepath.Join(b.dir, "release-"+version)
		var more []string
		if i > 0 {
			more = []string{"--previous", "1.0.0"}
		}
		if err := b.assemble(ctx, filepath.Join("examples/platform", version), version, made[i], more...); err != nil {
			return "", "", err
		}
	}
	return made[0], made[1], nil
}

func (b *bench) push(ctx context.Context, folder string) (r releaseInput, err error) {
	tree := os.DirFS(folder)
	r.image, err = fixture.PushRelease(ctx, b.registry, tree, "platform/release:"+filepath.Base(folder))
	if err != nil {
		return r, err
	}
	filter := inclusion.Filter{}
	filter.Capabilities, _ = inclusion.EnabledCapabilities(nil, nil, nil)
	r.payload, err = payload.Load(tree, r.image.ByDigest(), payload.Options{Filter: filter})
	return r, err
}

// cluster starts a control plane with the objects that a platform's installer creates first.
func (b *bench) cluster(ctx context.Context, level env.AuditLevel, sc scenario) (*env.Env, error) {
	e, err := env.Start(env.Options{Audit: level})
	if err != nil {
		return nil, err
	}
	if err := createAll(ctx, e.Config("bench"), b.bootstrap); err != nil {
		_ = e.Stop()
		return nil, fmt.Errorf("creating the objects of the platform's installer: %w", err)
	}
	if sc.foreign > 0 {
		b.say("%screating the foreign objects", sc.prefix())
	}
	if err := populate(ctx, e, sc.foreign); err != nil {
		_ = e.Stop()
		return nil, err
	}
	return e, nil
}

func createAll(ctx context.Context, config *rest.Config, files []string) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq("\n"+string(data), "\n---") {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			if len(obj.Object) == 0 {
				continue
			}
			if err := c.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
			}
		}
	}
	return nil
}

// revision returns the measured commit, empty if git does not know it.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// applyOptions returns the options of the plain loader.
func applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: loaderName, Force: true}
}
