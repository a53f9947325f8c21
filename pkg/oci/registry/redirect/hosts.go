package redirect

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// Causes of a request to a host that is not configured.
const (
	causeRedirect = "redirect"
	causeToken    = "token server"
	causeUpload   = "upload location"
)

// maxIntroduced limits the remembered introductions. A forgotten introduction is treated like one by a server at a public address.
const maxIntroduced = 1000

// Hosts are the known hosts of a registry client. Pullspecs and mirrors name configured hosts. Registries introduce other hosts: a token
// server in a challenge, or the location where an upload continues. The library contacts introduced hosts without a redirect, so the
// request does not show which server chose its host.
type Hosts struct {
	mu    sync.Mutex
	named map[string]bool
	// introducedBy maps an introduced URL without query to its hop.
	introducedBy map[string]*hop
}

// NewHosts returns an empty Hosts.
func NewHosts() *Hosts {
	return &Hosts{named: map[string]bool{}, introducedBy: map[string]*hop{}}
}

// Name records a host from the configuration or from a pullspec.
func (s *Hosts) Name(host string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named[host] = true
}

// introducer returns the hop that chose the host of a request without a redirect; nil if the host is configured. If no known response
// introduced the host, it returns a hop without an address, which is treated as public.
func (s *Hosts) introducer(req *http.Request) (by *hop, cause string) {
	if s == nil {
		return nil, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named[req.URL.Host] {
		return nil, ""
	}
	cause = causeToken
	if req.Method == http.MethodPatch || req.Method == http.MethodPut {
		cause = causeUpload
	}
	if by := s.introducedBy[introducedKey(req.URL)]; by != nil {
		return by, cause
	}
	return &hop{url: &url.URL{Host: "a registry"}}, cause
}

// learn records the hosts that a response introduces.
func (s *Hosts) learn(h *hop, resp *http.Response) {
	if s == nil || resp == nil {
		return
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		for _, realm := range realms(resp) {
			s.introduce(h, realm)
		}
	case http.StatusAccepted, http.StatusCreated:
		if location, err := resp.Location(); err == nil {
			s.introduce(h, location)
		}
	}
}

// introduce records that the response of a hop introduces a URL. If servers at private and public addresses introduce the same URL, the
// private one counts, because the private server could cause the same request alone.
func (s *Hosts) introduce(h *hop, u *url.URL) {
	if hostPort(u) == hostPort(h.first().url) {
		return // never judged
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := introducedKey(u)
	if known := s.introducedBy[key]; known != nil && !known.public() && h.public() {
		return
	}
	if len(s.introducedBy) >= maxIntroduced {
		clear(s.introducedBy)
	}
	s.introducedBy[key] = h
}

func introducedKey(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + hostPort(u) + u.EscapedPath()
}

// realmPattern finds the realm of a challenge (RFC 9110, 11.6.1). The library has its own parser, which it does not export. If the two
// disagree, the token server counts as introduced by an unknown server, which is stricter.
var realmPattern = regexp.MustCompile(`(?i)\brealm\s*=\s*(?:"([^"]*)"|([^\s",]+))`)

// realms returns the token server URLs of a challenge.
func realms(resp *http.Response) []*url.URL {
	var out []*url.URL
	for _, challenge := range resp.Header.Values("WWW-Authenticate") {
		for _, found := range realmPattern.FindAllStringSubmatch(challenge, -1) {
			if u, err := url.Parse(cmp.Or(found[1], found[2])); err == nil && u.Host != "" {
				out = append(out, u)
			}
		}
	}
	return out
}

// distrusted is the fragment of URLs that get no credentials. No client sends a fragment to a server.
const distrusted = "no-credentials-without-TLS"

var parameterPattern = regexp.MustCompile(`(?i)\b(realm|service|scope)\s*=\s*(?:"([^"\\]*)"|([^\s",\\]+))`)

// DistrustRealms marks the token servers in the challenges of a response that the network may have replaced. It rewrites each challenge from
// the parameters that it recognizes, so that the library's parser cannot find an unmarked token server.
func DistrustRealms(header http.Header) {
	challenges := header.Values("WWW-Authenticate")
	for i, challenge := range challenges {
		if len(challenge) < len("Bearer") || !strings.EqualFold(challenge[:len("Bearer")], "Bearer") {
			continue // names no token server
		}
		var parameters []string
		for _, found := range parameterPattern.FindAllStringSubmatch(challenge, -1) {
			name, value := strings.ToLower(found[1]), cmp.Or(found[2], found[3])
			if name == "realm" {
				u, err := url.Parse(value)
				if err != nil {
					continue
				}
				value = Distrust(u).String()
			}
			parameters = append(parameters, name+`="`+value+`"`)
		}
		challenges[i] = "Bearer " + strings.Join(parameters, ",")
	}
}

// Distrust returns a URL with a mark that it gets no credentials.
func Distrust(u *url.URL) *url.URL {
	marked := *u
	marked.Fragment, marked.RawFragment = distrusted, ""
	return &marked
}

// IsDistrusted reports whether a URL has the mark of Distrust.
func IsDistrusted(u *url.URL) bool { return u.Fragment == distrusted }
