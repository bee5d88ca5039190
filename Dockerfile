# A broker: docker build -t odradek . && docker run -p 9092:9092 -v odradek:/var/lib/odradek odradek
# Settings are variables: ODRADEK_NUM_PARTITIONS=6 is num.partitions=6. EXTRAS=spark adds pipelines.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
SHELL ["/bin/bash", "-eu", "-o", "pipefail", "-c"]
# The versions of compilers in Debian's stable release are as good as any.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --no-install-recommends -y gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md ./
COPY src src
COPY examples examples
ARG EXTRAS=
# A wheel, so that the hot path is compiled; into an environment that the second stage takes over.
RUN ODRADEK_COMPILED=1 pip wheel --no-deps --wheel-dir /wheels . \
    && python -m venv /opt/odradek \
    && wheel=$(echo /wheels/odradek-*.whl) \
    && /opt/odradek/bin/pip install "${wheel}${EXTRAS:+[${EXTRAS}]}"

FROM python:${PYTHON}-slim
RUN groupadd --gid 9092 odradek \
    && useradd --no-log-init --uid 9092 --gid 9092 --home-dir /var/lib/odradek --create-home --shell /usr/sbin/nologin odradek
COPY --from=build /opt/odradek /opt/odradek
ENV PATH=/opt/odradek/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ODRADEK_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    ODRADEK_LOG_DIRS=/var/lib/odradek/data \
    ODRADEK_ODRADEK_METRICS_PORT=9464 \
    ODRADEK_ODRADEK_METRICS_HOST=0.0.0.0
USER 9092:9092
WORKDIR /var/lib/odradek
VOLUME /var/lib/odradek
EXPOSE 9092 9464
HEALTHCHECK --interval=5s --timeout=5s --start-period=5m CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["odradek"]
CMD ["serve", "--log-format", "json"]
