package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxAnswer bounds what is read of a server's answer.
const maxAnswer = 1 << 20

// resumeCmd and resetCmd talk to a running `calve serve`.
func (a *app) resumeCmd() *cobra.Command {
	return a.controlCmd("resume", "Have a pipeline of a running server try again",
		`Have a pipeline that failed, or waits before it tries again, begin at once. Ask the server for what it waits for with
GET /status. A pipeline of many topics is named NAME:TOPIC.`)
}

func (a *app) resetCmd() *cobra.Command {
	return a.controlCmd("reset", "Let a failed pipeline begin its source anew",
		`Let a pipeline that stopped because its topic was deleted and created again, or its log was cut, go on with what is
there: another topic is read from its beginning (or the end, with kafka.start: latest), a log that was cut from where it
begins. Rows that are in the table stay. The error of the pipeline names the offsets. A source that can be continued is
continued, whatever is asked.`)
}

func (a *app) controlCmd(verb, short, long string) *cobra.Command {
	var server, tokenEnv string
	c := &cobra.Command{
		Use: verb + " PIPELINE", Short: short, Long: long,
		Example: "  calve " + verb + " orders\n  calve " + verb + " lake:shop.orders --server https://calve.example:8181",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("calve %s takes the name of one pipeline, not %d arguments; see `calve %[1]s --help`", verb, len(args))
			}
			st, err := control(cmd.Context(), server, os.Getenv(tokenEnv), verb, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(st)
			}
			_, err = fmt.Fprintf(a.out, "pipeline %s goes on\n", args[0])
			return err
		},
	}
	def := os.Getenv("CALVE_SERVER")
	if def == "" {
		def = "http://127.0.0.1:8181"
	}
	c.Flags().StringVar(&server, "server", def, "address of the server ($CALVE_SERVER)")
	c.Flags().StringVar(&tokenEnv, "token-env", "CALVE_TOKEN", "environment variable that holds the token, where the server asks for one")
	return c
}

// control asks a server to resume or reset a pipeline, and gives the pipeline's status.
func control(ctx context.Context, server, token, verb, name string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	to := strings.TrimSuffix(server, "/") + "/v1/pipelines/" + url.PathEscape(name) + "/" + verb
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, nil)
	if err != nil {
		return nil, fmt.Errorf("--server %s: %w", server, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from the server (calve serve, key \"listen\"): %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	var st map[string]any
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, &st); err != nil {
			return nil, fmt.Errorf("%s: the answer is no JSON: %w", to, err)
		}
		return st, nil
	}
	var p struct {
		Error struct{ What, Do string }
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Error.What == "" {
		return nil, fmt.Errorf("%s: %s", to, resp.Status)
	}
	return nil, fmt.Errorf("%s: %s (%s)", name, p.Error.What, p.Error.Do)
}
