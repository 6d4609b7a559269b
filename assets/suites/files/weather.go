package weather

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
)

type Reading struct {
	Station string  `json:"station"`
	Hour    int     `json:"hour"`
	Temp    float64 `json:"temp"`
	Wind    float64 `json:"wind"`
}

type Client struct {
	BaseURL string
}

func (c *Client) Fetch(day string) ([]Reading, error) {
	resp, err := http.Get(c.BaseURL + "/readings?day=" + day)
	if err != nil {
		return nil, err
	}
	var readings []Reading
	if err := json.NewDecoder(resp.Body).Decode(&readings); err != nil {
		return nil, err
	}
	return readings, nil
}

func Hottest(readings []Reading) Reading {
	best := readings[0]
	for _, r := range readings {
		if r.Temp > best.Temp {
			best = r
		}
	}
	return best
}

func MeanByStation(readings []Reading) map[string]float64 {
	sums := map[string]float64{}
	counts := map[string]int{}
	for _, r := range readings {
		sums[r.Station] += r.Temp
		counts[r.Station]++
	}
	means := map[string]float64{}
	for s, sum := range sums {
		means[s] = sum / float64(counts[s])
	}
	return means
}

func Report(readings []Reading) string {
	means := MeanByStation(readings)
	var stations []string
	for s := range means {
		stations = append(stations, s)
	}
	sort.Strings(stations)
	out := ""
	for _, s := range stations {
		out += fmt.Sprintf("%s: %.1f\n", s, means[s])
	}
	return out
}
