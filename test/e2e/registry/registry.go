// Package registry runs an image registry for tests beside a kind cluster, as a container in the cluster's network. It uses TLS and a
// password, has the same address for this machine, the nodes and the pods, and can simulate faults. The password is needed for platform/
// and everything else except components/, which can be pulled without it.
package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cluster-version/cvo/test/e2e/docker"
	"github.com/cluster-version/cvo/test/e2e/program"
	"github.com/cluster-version/cvo/test/e2e/registry/control"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

const (
	// DefaultNetwork is the Docker network in which kind creates its nodes.
	DefaultNetwork = "kind"

	image = "cvo-e2e-registry:local"
)

// Options are the options of the registry.
type Options struct {
	// Name is the container's name. An existing container with that name is removed.
	Name string
	// Network is the Docker network of the container; default kind. It must exist.
	Network string
}

// Registry is a running registry.
type Registry struct {
	// Name is the container's name.
	Name string
	// Host is the host part of pullspecs, such as 172.18.0.5:5000.
	Host string
	// CA is the certificate of the authority that clients must trust, as PEM.
	CA []byte
	// User and Password are needed to push, and to pull anything outside of components/.
	User, Password string

	controlURL string
	transport  *http.Transport
}

// Start starts the registry and returns when it responds.
func Start(ctx context.Context, o Options) (*Registry, error) {
	o.Network = cmp.Or(o.Network, DefaultNetwork)
	if err := load(ctx); err != nil {
		return nil, err
	}
	ca, err := authority.New("registry of " + o.Name)
	if err != nil {
		return nil, err
	}
	r := &Registry{Name: o.Name, CA: ca.Certificate, User: "puller", Password: rand.Text()}
	if err := r.Stop(ctx); err != nil {
		return nil, err
	}
	if _, err := docker.Run(ctx, nil, "run", "--detach", "--name", o.Name, "--hostname", o.Name, "--network", o.Network,
		"--env", "CA_CERTIFICATE="+string(ca.Certificate), "--env", "CA_KEY="+string(ca.Key),
		"--env", "REGISTRY_USER="+r.User, "--env", "REGISTRY_PASSWORD="+r.Password, image); err != nil {
		return nil, fmt.Errorf("starting the registry: %w", err)
	}
	if err := r.connect(ctx, o.Network); err != nil {
		logs, _ := docker.Run(ctx, nil, "logs", o.Name)
		return nil, errors.Join(fmt.Errorf("starting the registry: %w: %s", err, logs), r.Stop(context.WithoutCancel(ctx)))
	}
	return r, nil
}

// Attach returns a registry that an earlier process has left.
func Attach(ctx context.Context, o Options) (*Registry, error) {
	out, err := docker.Run(ctx, nil, "inspect", "--format", "{{json .Config.Env}}", o.Name)
	if err != nil {
		return nil, fmt.Errorf("looking for the registry: %w", err)
	}
	var variables []string
	if err := json.Unmarshal([]byte(out), &variables); err != nil {
		return nil, fmt.Errorf("looking for the registry: %w", err)
	}
	r := &Registry{Name: o.Name}
	for _, variable := range variables {
		switch name, value, _ := strings.Cut(variable, "="); name {
		case "CA_CERTIFICATE":
			r.CA = []byte(value)
		case "REGISTRY_USER":
			r.User = value
		case "REGISTRY_PASSWORD":
			r.Password = value
		}
	}
	return r, r.connect(ctx, cmp.Or(o.Network, DefaultNetwork))
}

// load loads the server's image into Docker.
func load(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "cvo-registry-")
	if err != nil {
		return fmt.Errorf("creating a folder for the registry's image: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans temporary folders
	binary, err := program.Build(ctx, dir, "test/e2e/registry/server")
	if err != nil {
		return err
	}
	made, err := program.Image(binary, nil, "data")
	if err != nil {
		return err
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	if err := tarball.Write(tag, made, &file); err != nil {
		return fmt.Errorf("writing the registry's image: %w", err)
	}
	before, _ := docker.Run(ctx, nil, "image", "inspect", "--format", "{{.Id}}", image) // there may be no image
	if _, err := docker.Run(ctx, &file, "load"); err != nil {
		return err
	}
	if after, err := docker.Run(ctx, nil, "image", "inspect", "--format", "{{.Id}}", image); err != nil || before == "" || after == before {
		return err
	}
	_, _ = docker.Run(ctx, nil, "rmi", before) // this image is ours; it stays if it is still in use
	return nil
}

func (r *Registry) connect(ctx context.Context, network string) error {
	format := fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", network)
	address, err := docker.Run(ctx, nil, "inspect", "--format", format, r.Name)
	if err != nil {
		return err
	}
	if net.ParseIP(address) == nil {
		return fmt.Errorf("finding the address: docker returned %q", address)
	}
	r.Host, r.controlURL = net.JoinHostPort(address, "5000"), "http://"+net.JoinHostPort(address, "5001")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.CA)
	transport, _ := http.DefaultTransport.(*http.Transport)
	r.transport = transport.Clone()
	r.transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	r.transport.Proxy = nil
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err = r.Requests(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s (can this machine reach the network of Docker's containers?): %w", r.controlURL, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Stop removes the registry and its content.
func (r *Registry) Stop(ctx context.Context) error {
	if _, err := docker.Run(ctx, nil, "rm", "--force", "--volumes", r.Name); err != nil {
		// Some versions of docker report an error if the container does not exist.
		if left, listErr := docker.Run(ctx, nil, "ps", "--all", "--quiet", "--filter", "name=^"+r.Name+"$"); listErr != nil || left != "" {
			return fmt.Errorf("removing the registry: %w", err)
		}
	}
	return nil
}

// Transport returns a transport that trusts the registry.
func (r *Registry) Transport() http.RoundTripper { return r.transport }

// Auth returns the user and the password.
func (r *Registry) Auth() authn.Authenticator {
	return &authn.Basic{Username: r.User, Password: r.Password}
}

// PullSecret returns the password as a pull secret, in the format of a Secret's key .dockerconfigjson.
func (r *Registry) PullSecret() ([]byte, error) {
	auth := base64.StdEncoding.EncodeToString([]byte(r.User + ":" + r.Password))
	return json.Marshal(map[string]any{"auths": map[string]any{r.Host: map[string]string{"auth": auth}}})
}

// Push pushes an image to a repository and tag, such as platform/probe:1, and returns its pullspec with the digest.
func (r *Registry) Push(ctx context.Context, repositoryAndTag string, image v1.Image) (string, error) {
	tag, err := name.NewTag(r.Host + "/" + repositoryAndTag)
	if err != nil {
		return "", fmt.Errorf("pushing an image: %w", err)
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx), remote.WithTransport(r.transport), remote.WithAuth(r.Auth())); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	return tag.Digest(digest.String()).String(), nil
}

// Inject makes the registry misbehave until Heal or for the duration of the fault.
func (r *Registry) Inject(ctx context.Context, fault control.Fault) error {
	body, err := json.Marshal(fault)
	if err != nil {
		return err
	}
	_, err = r.control(ctx, http.MethodPost, "/faults", body)
	return err
}

// Heal ends all faults.
func (r *Registry) Heal(ctx context.Context) error {
	_, err := r.control(ctx, http.MethodDelete, "/faults", nil)
	return err
}

// Requests returns all requests since the start or the last ForgetRequests, in the order in which they ended.
func (r *Registry) Requests(ctx context.Context) ([]control.Request, error) {
	answer, err := r.control(ctx, http.MethodGet, "/requests", nil)
	if err != nil {
		return nil, err
	}
	var requests []control.Request
	if err := json.Unmarshal(answer, &requests); err != nil {
		return nil, fmt.Errorf("parsing the registry's requests: %w", err)
	}
	return requests, nil
}

// ForgetRequests drops all requests so far.
func (r *Registry) ForgetRequests(ctx context.Context) error {
	_, err := r.control(ctx, http.MethodDelete, "/requests", nil)
	return err
}

func (r *Registry) control(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.controlURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := r.transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("calling the registry's control endpoint: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("calling the registry's control endpoint: %w: %s", err, answer)
	}
	return answer, nil
}
