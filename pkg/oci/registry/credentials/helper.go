package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// maxHelperTime is the time limit for a credential helper. Some helpers prompt the user.
const maxHelperTime = time.Minute

var helperName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

// ask looks up credentials like the command line tools do: first from the registry's helper program, then in the file, then from the
// default helper program.
func (s *PullSecret) ask(ctx context.Context, target authn.Resource) (authn.AuthConfig, bool, error) {
	host := normalKey(target.RegistryStr())
	if helper, ok := s.helpers[host]; ok {
		return askHelper(ctx, helper, host)
	}
	if found, ok := s.find(target); ok {
		return found.AuthConfig, true, found.err
	}
	if s.store != "" {
		return askHelper(ctx, s.store, host)
	}
	return authn.AuthConfig{}, false, nil
}

// askHelper speaks the protocol of docker-credential-helpers: it writes the host to the program's input and reads JSON from its output.
func askHelper(ctx context.Context, helper, host string) (authn.AuthConfig, bool, error) {
	var none authn.AuthConfig
	if !helperName.MatchString(helper) {
		return none, false, fmt.Errorf("%q is not the name of a credential helper", helper)
	}
	if host == "docker.io" {
		host = authn.DefaultAuthKey
	}
	ctx, cancel := context.WithTimeout(ctx, maxHelperTime)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin, cmd.Stdout = strings.NewReader(host), &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		output := strings.TrimSpace(out.String())
		if strings.Contains(output, "credentials not found") {
			return none, false, nil
		}
		return none, false, fmt.Errorf("running docker-credential-%s: %w %s", helper, err, output)
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return none, false, fmt.Errorf("docker-credential-%s: %w", helper, withoutContent(err))
	}
	switch {
	case answer.Secret == "":
		return none, false, nil
	case answer.Username == "<token>": // the protocol's marker for identity tokens
		return authn.AuthConfig{IdentityToken: answer.Secret}, true, nil
	default:
		return authn.AuthConfig{Username: answer.Username, Password: answer.Secret}, true, nil
	}
}
