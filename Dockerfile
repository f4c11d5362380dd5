# CPU:  docker build -t grok_lightning .
# CUDA: docker build -t grok_lightning --build-arg BASE=<image with Python 3.11 or newer and a CUDA build of torch 2.13.0> .
# Run:  docker run --rm -v "$PWD/runs:/app/runs" grok_lightning fit --config configs/addition.yaml
ARG BASE=python:3.11-slim
FROM ${BASE}

# git is for the commit in a run's provenance; a volume mounted at runs/ has to be writable for user 1000.
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 grok
WORKDIR /app
COPY --chown=grok:grok . /app
RUN pip install --no-cache-dir -c constraints.txt -e . && chown grok:grok /app
USER grok
ENTRYPOINT ["python", "-m", "grok_lightning"]
