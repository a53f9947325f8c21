package registry

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// maxPullSecretBytes bounds a pull secret; a Secret cannot hold more.
const maxPullSecretBytes = 1 << 20

// PullSecret is the content of a Secret of type kubernetes.io/dockerconfigjson, which is that of Docker's and Podman's
// registry configuration file too. It is a keychain whose most specific key for a repository wins: host/namespace/name,
// then host/namespace, then host.
type PullSecret struct {
	// auths are credentials by normalised key.
	auths map[string]credentials
	// helpers are names of credential helper programs by host; store is the one for all others.
	helpers map[string]string
	store   string
}

// credentials are those of one key, or why they cannot be used. A broken entry is no trouble to other registries.
type credentials struct {
	authn.AuthConfig
	err error
}

// authEntry is one entry of "auths".
type authEntry struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// ParsePullSecret reads a pull secret. Its errors do not repeat what is secret.
func ParsePullSecret(data []byte) (*PullSecret, error) {
	if len(data) > maxPullSecretBytes {
		return nil, fmt.Errorf("%w: a pull secret of more than %d bytes", ErrLimit, maxPullSecretBytes)
	}
	var config struct {
		Auths       map[string]authEntry `json:"auths"`
		CredHelpers map[string]string    `json:"credHelpers"`
		CredsStore  string               `json:"credsStore"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, withoutContent(err)
	}
	return newPullSecret(config.Auths, config.CredHelpers, config.CredsStore), nil
}

// parseDockercfg reads the older form, which has the entries at its top.
func parseDockercfg(data []byte) (*PullSecret, error) {
	var auths map[string]authEntry
	if err := json.Unmarshal(data, &auths); err != nil {
		return nil, withoutContent(err)
	}
	return newPullSecret(auths, nil, ""), nil
}

// withoutContent keeps of an error of encoding/json where it is, not what is there.
func withoutContent(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("no JSON: trouble at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("not in the form of a registry configuration: trouble at byte %d", kind.Offset)
	default:
		return errors.New("no JSON")
	}
}

func newPullSecret(auths map[string]authEntry, helpers map[string]string, store string) *PullSecret {
	s := &PullSecret{auths: map[string]credentials{}, helpers: map[string]string{}, store: store}
	// A key that is written as it is looked up wins over its other spellings; among those, the first.
	keys := make([]string, 0, len(auths))
	for key := range auths {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if plainA, plainB := normalKey(a) == a, normalKey(b) == b; plainA != plainB {
			if plainA {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, key := range keys {
		config, err := auths[key].config()
		if err != nil {
			err = fmt.Errorf("the pull secret's entry for %q: %w", key, err)
		}
		normal := normalKey(key)
		if _, ok := s.auths[normal]; !ok && (config != (authn.AuthConfig{}) || err != nil) {
			s.auths[normal] = credentials{AuthConfig: config, err: err}
		}
	}
	for host, helper := range helpers {
		s.helpers[normalKey(host)] = helper
	}
	return s
}

// config is the credentials of an entry; the zero value if it has none, as entries of credential helpers do.
func (e authEntry) config() (authn.AuthConfig, error) {
	config := authn.AuthConfig{
		Username: e.Username, Password: e.Password,
		IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken,
	}
	if e.Auth == "" {
		return config, nil
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(e.Auth))
	if err != nil {
		return config, errors.New(`"auth" is not base64`)
	}
	username, password, ok := strings.Cut(string(plain), ":")
	if !ok || username == "" {
		return config, errors.New(`"auth" is not base64 of <username>:<password>`)
	}
	config.Username, config.Password = username, strings.Trim(password, "\x00")
	return config, nil
}

// normalKey is a key as it is looked up: without scheme, without the API version that old clients wrote behind the
// host, without the port that is default, in the one name of Docker Hub.
func normalKey(key string) string {
	_, rest, ok := strings.Cut(key, "://")
	if ok {
		key = rest
	}
	host, path, _ := strings.Cut(key, "/")
	host = strings.TrimSuffix(normalLocation(host), ":443")
	path = strings.Trim(path, "/")
	if path == "v1" || path == "v2" || path == "" {
		return host
	}
	return host + "/" + path
}

// Resolve implements authn.Keychain.
func (s *PullSecret) Resolve(target authn.Resource) (authn.Authenticator, error) {
	found, ok := s.find(target)
	if !ok {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(found.AuthConfig), found.err
}

// find looks for the most specific key of a target.
func (s *PullSecret) find(target authn.Resource) (credentials, bool) {
	for key := normalKey(target.String()); ; {
		if config, ok := s.auths[key]; ok {
			return config, true
		}
		slash := strings.LastIndex(key, "/")
		if slash < 0 {
			return credentials{}, false
		}
		key = key[:slash]
	}
}
