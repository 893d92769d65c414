package config

import (
	"fmt"
	"os"
	"strings"
)

// Registry is a schema registry with the interface of Confluent's.
type Registry struct {
	URLs        []string `yaml:"urls" doc:"Addresses of the schema registry, http://host:port or https://host:port; the first that answers is taken."`
	User        string   `yaml:"user" doc:"Name of the user, for basic authentication."`
	PasswordEnv string   `yaml:"password-env" doc:"Environment variable that holds the user's password."`
	TokenEnv    string   `yaml:"token-env" doc:"Environment variable that holds a bearer token."`
	CA          string   `yaml:"ca" doc:"File with the authorities to trust, in PEM, instead of those of this machine."`
}

// Secrets gives the password and the token. They are not to be printed.
func (r Registry) Secrets() (password, token string, err error) {
	for _, x := range []struct {
		key, env string
		to       *string
	}{{"password-env", r.PasswordEnv, &password}, {"token-env", r.TokenEnv, &token}} {
		if x.env == "" {
			continue
		}
		if *x.to = strings.TrimSpace(os.Getenv(x.env)); *x.to == "" {
			return "", "", fmt.Errorf("key \"registry.%s\": the environment variable %s is empty or not set", x.key, x.env)
		}
	}
	return password, token, nil
}

// registry checks the registry and who needs it.
func (c *checker) registry(cfg *Config) {
	r := cfg.Registry
	if (r.User == "") != (r.PasswordEnv == "") {
		c.failAt("registry", "user and password-env belong together")
	}
	if r.User != "" && r.TokenEnv != "" {
		c.failAt("registry", "use a user or a token, not both")
	}
	for i, p := range cfg.Pipelines {
		at := fmt.Sprintf("pipelines[%d]", i)
		if p.Format.Framed() && len(r.URLs) == 0 {
			c.failAt(at+".format", "%s needs a schema registry; give registry.urls", p.Format.Type)
		}
	}
}

// Framed reports whether records name the schema that they were written with.
func (f Format) Framed() bool {
	return f.Type == "avro" || f.Type == "debezium-avro" || f.Type == "protobuf"
}
