# syntax=docker/dockerfile:1
# Training on a GPU. See docs/docker.md.
#
#   docker build -t medqn .
#   docker run --rm --gpus all --shm-size 1g -v medqn-runs:/runs medqn train atari --logdir /runs

# The packages are built into a virtual environment here; only that reaches the final image.
FROM python:3.11.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/medqn
ENV PATH=/opt/medqn/bin:$PATH
# The package index has torch for Linux built with CUDA, and the CUDA libraries as packages: the host
# needs a driver and no toolkit. For another CUDA version, name the index that has that build.
ARG TORCH_INDEX=
ARG EXTRAS=atari,minatar
# First what changes rarely, so that a change of the code does not fetch torch anew.
COPY constraints.txt docker/install.sh ./
RUN ./install.sh torch constraints.txt "${TORCH_INDEX}"
COPY pyproject.toml README.md LICENSE ./
COPY medqn_tianshou medqn_tianshou
RUN ./install.sh package constraints.txt "${EXTRAS}"

FROM python:3.11.11-slim-bookworm
# OpenCV's windows library is linked to these, also where no window is opened; libgomp is torch's.
RUN apt-get update \
    && apt-get install --no-install-recommends --yes libgl1=1.6.* libglib2.0-0=2.74.* libgomp1=12.2.* \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 medqn && mkdir /runs && chown medqn:medqn /runs
COPY --from=build /opt/medqn /opt/medqn
ENV PATH=/opt/medqn/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /runs
VOLUME /runs
# The exec form: medqn is process 1, and the SIGTERM of `docker stop` reaches it.
STOPSIGNAL SIGTERM
ENTRYPOINT ["medqn"]
CMD ["doctor", "--logdir", "/runs"]
