"""What an error of a remote store means: table rows, as each cloud's library has its own errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_qnnctx.build.pins.store_place import scrub
from pytest_qnnctx.errors import InfrastructureError

#: Protocol -> (the extra of this package that brings it, the package that it brings).
_BRINGS = {
    "http": ("fetch", "fsspec[http]"),
    "https": ("fetch", "fsspec[http]"),
    "s3": ("s3", "s3fs"),
    "s3a": ("s3", "s3fs"),
    "gs": ("gcs", "gcsfs"),
    "gcs": ("gcs", "gcsfs"),
    "az": ("azure", "adlfs"),
    "abfs": ("azure", "adlfs"),
    "abfss": ("azure", "adlfs"),
}
#: Answers after which the same question may be answered otherwise.
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
#: How the clouds' libraries call it: botocore, google-auth, azure-core and azure-identity.
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "DefaultCredentialsError",
        "RefreshError",
        "ClientAuthenticationError",
        "CredentialUnavailableError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "SSOTokenLoadError",
        "ProfileNotFound",
    }
)
#: botocore and azure-core derive these from neither OSError nor ConnectionError.
_UNREACHABLE = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "HTTPClientError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
        "ClientError",  # aiohttp's, of which all that concern a connection are derived
    }
)
_LOGIN = {
    "http": "put a machine entry for the host into ~/.netrc, or headers into the FSSPEC_HTTP "
    "variable",
    "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run aws sso login",
    "gcs": "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
    "azure": "run az login, and set AZURE_STORAGE_ACCOUNT_NAME (and a key or identity) or "
    "AZURE_STORAGE_CONNECTION_STRING",
}


@dataclass(frozen=True)
class Trouble:
    """What went wrong with a store. ``transient``: trying again may help."""

    what: str
    next_step: str
    transient: bool = False
    missing: bool = False


def explain(error: Exception, scheme: str, where: str) -> Trouble:
    """What ``error``, raised while ``where`` was fetched over ``scheme``, means."""
    chain = list(_chain(error))
    status = next((found for one in chain if (found := _status(one)) is not None), None)
    names = {kind.__name__ for one in chain for kind in type(one).__mro__}
    said = scrub(str(error)) or type(error).__name__
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return Trouble(
            f"{where} is not in the store",
            "put it there, or correct `store` in the manifest, or pin it again: "
            "qnnctx build MODEL --update-manifest --publish STORE",
            missing=True,
        )
    if status in (401, 407) or names & _NO_CREDENTIALS or _wants_credentials(error):
        answer = f"HTTP {status}" if status else type(error).__name__
        return Trouble(f"the store wants credentials for {where} ({answer})", _login(scheme))
    if isinstance(error, PermissionError) or status == 403:
        answer = f" (HTTP {status})" if status else ""
        return Trouble(
            f"the store denies access to {where}{answer}",
            f"ask for the right to read it, or use another identity: {_login(scheme)}",
        )
    if status in _TRANSIENT:
        return Trouble(
            f"the store failed with HTTP {status} for {where}", "look at the store", transient=True
        )
    if status is None and (isinstance(error, OSError) or names & _UNREACHABLE):
        return Trouble(
            f"the store cannot be reached, or broke off, at {where}: {said}",
            "check the network, proxy and `store` in the manifest; binaries that are in the cache "
            "need no store",
            transient=True,
        )
    answer = f"HTTP {status}" if status else f"{type(error).__name__}: {said}"
    return Trouble(f"{where} could not be fetched: {answer}", "check `store` in the manifest")


def missing_package(scheme: str, error: ImportError) -> InfrastructureError:
    """fsspec, or what it needs for ``scheme``, is not installed."""
    extra, package = _BRINGS.get(scheme, ("fetch", ""))
    if not package:
        package = scrub(str(error), 120)
    return InfrastructureError(
        f"a store at {scheme}:// needs {package}, which is not installed",
        next_step=f"pip install 'pytest-qnnctx[{extra}]'",
    )


def _login(scheme: str) -> str:
    return _LOGIN.get(_BRINGS.get(scheme, ("fetch", ""))[0], _LOGIN["http"])


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _status(error: BaseException) -> int | None:
    """The HTTP status that aiohttp, gcsfs, azure-core or botocore keep in their errors."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    values = [getattr(error, "status", None), getattr(error, "status_code", None), response]
    if not type(error).__module__.startswith("aiohttp"):
        values.append(getattr(error, "code", None))  # aiohttp has 400 there for a broken transfer
    return next((v for v in values if isinstance(v, int) and 400 <= v < 600), None)


def _wants_credentials(error: Exception) -> bool:
    """Whether it is the ValueError with which adlfs says it."""
    return isinstance(error, ValueError) and "credential" in str(error).lower()
