# fedminmax for the CPU: the server, a site, or a coordinator's commands (examples/compose).
#   docker build --tag fedminmax .
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml constraints.txt MANIFEST.in README.md LICENSE CHANGELOG.md CITATION.cff SECURITY.md ./
COPY src ./src
# torch's project has an index of CPU builds: without gigabytes of GPU libraries. With its address,
#   docker build --build-arg PIP_EXTRA_INDEX_URL=ADDRESS --tag fedminmax .
# the image is far smaller.
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/fedminmax \
 && /opt/fedminmax/bin/python -m pip install --constraint constraints.txt '.[cli,flare]'

FROM python:3.12-slim-bookworm
COPY --from=build /opt/fedminmax /opt/fedminmax
# Any other user works as well: nothing outside mounted folders and /tmp is written.
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin fedminmax
USER 10001:10001
ENV PATH=/opt/fedminmax/bin:$PATH HOME=/tmp USER=fedminmax MPLCONFIGDIR=/tmp PYTHONUNBUFFERED=1
WORKDIR /federation
ENTRYPOINT ["fedminmax"]
CMD ["--help"]
