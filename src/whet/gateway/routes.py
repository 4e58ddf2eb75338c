"""Which traffic of an agent goes through the gateway, and the variables by which the agent finds it.

The agent gets made-up keys. The gateway knows which real one each of them replaces, and where that belongs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from whet import plugins
from whet.agents.contract import Agent, Options, Task
from whet.model.run import Runner
from whet.secrets import looks_secret

Network = Literal["none", "model", "full"]
# Only these carry keys; a made-up key anywhere else stays what it is.
KEY_HEADERS = (b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key")


class Provider(Struct, frozen=True, kw_only=True):
    """A provider by the variables of its own tools: its address, and the keys that it takes, the usual one first.

    Without `url`, it is reached only where the variable says so. `elsewhere` are variables that send an agent to
    another place, with a login of another kind.
    """

    name: str
    base: str
    keys: tuple[str, ...]
    url: str | None = None
    elsewhere: tuple[str, ...] = ()


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            name="anthropic",
            base="ANTHROPIC_BASE_URL",
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            url="https://api.anthropic.com",
            elsewhere=("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
        ),
        Provider(
            name="openai",
            base="OPENAI_BASE_URL",
            keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
            url="https://api.openai.com/v1",
        ),
        Provider(
            name="gemini",
            base="GOOGLE_GEMINI_BASE_URL",
            keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            url="https://generativelanguage.googleapis.com",
            elsewhere=("GOOGLE_GENAI_USE_VERTEXAI",),
        ),
        # The next two are asked for by the address of a compatible server, and are direct otherwise.
        Provider(name="openai-compatible", base="OPENAI_BASE_URL", keys=("OPENAI_API_KEY",)),
        Provider(name="copilot", base="COPILOT_PROVIDER_BASE_URL", keys=("COPILOT_PROVIDER_API_KEY",)),
    )
}
# In the place of a provider that is not asked.
_NOWHERE = "http://127.0.0.1:9"
# What a runner of type `command` or `acp` may name.
NAMED_PROVIDERS = ("anthropic", "openai", "gemini")


class Route(Struct, frozen=True, kw_only=True):
    """A way to a provider: where it is, and its real keys by the variables that they are from."""

    provider: Provider
    url: str
    keys: Mapping[str, str] = field(default_factory=dict)


def network_of(runner: Runner) -> Network:
    """Return what *runner* may reach."""
    network = runner.options.get("network", True)
    if isinstance(network, str):
        return network  # type: ignore[return-value] # the settings allow no other
    return "full" if network else "none"


def route_of(
    runner: Runner, environ: Mapping[str, str], more: Mapping[str, str] | None = None, *, played: bool = False
) -> Route | str:
    """Return the way of *runner* to its provider through the gateway, or why there is none.

    *environ* is our own; *more* are variables of the case. If answers are *played*, no key is needed.
    """
    name = provider_of(runner)
    if name is None:
        return "its agent takes no address of another provider"
    provider = PROVIDERS[name]
    variables = {**environ, **Options(runner.options).table("env"), **(more or {})}
    if redirect := next((variable for variable in provider.elsewhere if variables.get(variable)), None):
        return f"{redirect} sends it elsewhere"
    keys = {variable: variables[variable].strip() for variable in provider.keys if variables.get(variable, "").strip()}
    url = variables.get(provider.base) or provider.url or (_NOWHERE if played else None)
    if url is None:
        return f"{provider.base} is not set"
    if not url.startswith(("http://", "https://")):
        return f"{provider.base} is not an address"
    if not keys and not played and not (network_of(runner) == "model" and variables.get(provider.base)):
        return f"there is no key in {' or '.join(provider.keys)}"
    return Route(provider=provider, url=url.rstrip("/"), keys=keys)


def provider_of(runner: Runner) -> str | None:
    """Return the name of the provider that *runner* is known to use, if its agent takes an address."""
    provider = Options(runner.options).text("provider")
    if provider is not None:
        return provider
    agent: Agent = plugins.find("agents", runner.agent)()
    # One of a third party may be older than this.
    ask = getattr(agent, "provider_of", None)
    return ask(runner) if ask else None


class ProxyCredentials(Struct, frozen=True, kw_only=True):
    """What an agent is given instead of what it would need: an address of the gateway, and made-up keys."""

    route: Route
    address: str
    secret: str
    # More variables, such as those of a proxy.
    env: Mapping[str, str] = field(default_factory=dict)
    # The tools of the provider that pass; None if all of them do.
    hosted_tools: tuple[str, ...] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """All variables that replace the provider in the environment of the agent."""
        provider = self.route.provider
        keys = {name: self.made_up(name) for name in self.route.keys or provider.keys[:1]}
        return {provider.base: self.address, **keys, **self.env}

    def made_up(self, name: str) -> str:
        """Return the key that replaces the one in the variable *name*."""
        return f"sk-whet-{self.route.provider.keys.index(name)}-{self.secret}"

    @property
    def real_keys(self) -> dict[bytes, bytes]:
        """The real keys by the made-up ones."""
        return {self.made_up(name).encode(): key.encode() for name, key in self.route.keys.items()}

    def variable_in(self, headers: Iterable[tuple[bytes, bytes]], query: str) -> str | None:
        """Return the variable whose made-up key a request carries where a key belongs; None without one."""
        key_texts = b"\n".join((*(value for name, value in headers if name.lower() in KEY_HEADERS), query.encode()))
        return next((name for name in self.route.keys if self.made_up(name).encode() in key_texts), None)

    def task(self, task: Task) -> Task:
        """Return *task* as the agent gets it: other secrets that its adapter would pass on stay outside as well."""
        options = task.options
        passed_names = {*options.texts("pass_env")} - set(self.route.provider.keys)
        environ = {
            name: value for name, value in task.environ.items() if name in passed_names or not looks_secret(name)
        }
        env = {**options.table("env"), **self.variables}
        runner = replace(task.runner, options={**task.runner.options, "env": env})
        return replace(task, environ=environ, runner=runner, routed=True, hosted_tools=self.hosted_tools)

    def case_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a case without what would lead around the gateway."""
        provider = self.route.provider
        return {name: value for name, value in env.items() if name != provider.base and name not in provider.keys}


def find_unrouted(
    runners: Iterable[Runner], environ: Mapping[str, str], *, played: bool = False
) -> list[tuple[str, str]]:
    """Return the runners that ask for the model alone and cannot have it, each with the reason."""
    model_runners = {runner.id: runner for runner in runners if network_of(runner) == "model"}
    routes = ((name, route_of(runner, environ, played=played)) for name, runner in model_runners.items())
    return [(name, why) for name, why in routes if isinstance(why, str)]


def route_words(route: Route | str, runner: Runner) -> str | None:
    """Return how an agent asks its model, for the record; None if it is not known to ask one."""
    if isinstance(route, Route):
        return f"gateway to {route.provider.name}"
    # The agent of a third party may be older than this.
    is_direct = getattr(plugins.find("agents", runner.agent), "always_direct", False)
    asks = provider_of(runner) is not None or is_direct
    return f"direct: {route}" if asks else None


# Shorter keys, and those that could be words, are what servers of your own take, such as "placeholder" or "lm-studio".
_SHORTEST, _NO_WORD = 8, 24


def is_covered(key: str) -> bool:
    """Return whether *key* is covered in answers: it cannot be an ordinary word, which answers need."""
    if len(key) < _SHORTEST:
        return False
    is_mixed_case = key.lower() != key != key.upper()
    return len(key) >= _NO_WORD or is_mixed_case or any(character.isdecimal() for character in key)
