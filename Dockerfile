# fedminmax for the CPU: the server, a site, or a coordinator's commands (examples/compose).
#   docker build --tag fedminmax .
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml constraints.txt MANIFEST.in README.md LICENSE CHANGELOG.md CITATION.cff SECURITY.md ./
COPY src ./src
# The CPU build of the torch that constraints.txt pins has no gigabytes of GPU libraries.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/fedminmax \
 && /opt/fedminmax/bin/python -m pip install --extra-index-url "$TORCH_INDEX" \
    --constraint constraints.txt '.[cli,flare]'

FROM python:3.12-slim-bookworm
COPY --from=build /opt/fedminmax /opt/fedminmax
# Any other user works as well: nothing outside mounted folders and /tmp is written.
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin fedminmax
USER 10001:10001
ENV PATH=/opt/fedminmax/bin:$PATH HOME=/tmp USER=fedminmax MPLCONFIGDIR=/tmp PYTHONUNBUFFERED=1
WORKDIR /work
ENTRYPOINT ["fedminmax"]
CMD ["--help"]
