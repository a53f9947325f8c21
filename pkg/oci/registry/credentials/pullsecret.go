package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
)

// maxPullSecretBytes is the maximum size of a pull secret. It is also the limit of a Secret.
const maxPullSecretBytes = 1 << 20

// PullSecret is the content of a Secret of type kubernetes.io/dockerconfigjson, in the format of Docker's and Podman's registry
// configuration files. It is a keychain that uses the most specific key for a repository: host/namespace/name before host/namespace before
// host.
type PullSecret struct {
	// auths holds credentials by normalized key.
	auths map[string]login
	// helpers holds the names of credential helper programs by host. store is the helper for all other hosts.
	helpers map[string]string
	store   string
}

// login holds the credentials of one key, or the error in its entry. The error does not affect other registries.
type login struct {
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

// ParsePullSecret parses a pull secret. Its errors contain no secret content.
func ParsePullSecret(data []byte) (*PullSecret, error) {
	if len(data) > maxPullSecretBytes {
		return nil, fmt.Errorf("%w: the pull secret has more than %d bytes", failure.ErrLimit, maxPullSecretBytes)
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

// parseDockercfg parses the older format, which has the entries at the top level.
func parseDockercfg(data []byte) (*PullSecret, error) {
	var auths map[string]authEntry
	if err := json.Unmarshal(data, &auths); err != nil {
		return nil, withoutContent(err)
	}
	return newPullSecret(auths, nil, ""), nil
}

// withoutContent reduces an error of encoding/json to its position, because its text may contain secrets.
func withoutContent(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON: syntax error at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("not a registry configuration: wrong type at byte %d", kind.Offset)
	default:
		return errors.New("not JSON")
	}
}

func newPullSecret(auths map[string]authEntry, helpers map[string]string, store string) *PullSecret {
	s := &PullSecret{auths: map[string]login{}, helpers: map[string]string{}, store: store}
	// A key in normalized spelling takes precedence over its other spellings. Among those, the first counts.
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
			s.auths[normal] = login{AuthConfig: config, err: err}
		}
	}
	for host, helper := range helpers {
		s.helpers[normalKey(host)] = helper
	}
	return s
}

// config returns the credentials of an entry. It returns the zero value if the entry has none, like entries of credential helpers.
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

// normalKey normalizes a key for lookups. It drops the scheme, the API version that old clients append to the host, and the default port.
// It uses one name for Docker Hub.
func normalKey(key string) string {
	_, rest, ok := strings.Cut(key, "://")
	if ok {
		key = rest
	}
	host, path, _ := strings.Cut(key, "/")
	host = strings.TrimSuffix(location.Normalize(host), ":443")
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

// find returns the login with the most specific key for a target.
func (s *PullSecret) find(target authn.Resource) (login, bool) {
	for key := normalKey(target.String()); ; {
		if config, ok := s.auths[key]; ok {
			return config, true
		}
		slash := strings.LastIndex(key, "/")
		if slash < 0 {
			return login{}, false
		}
		key = key[:slash]
	}
}
